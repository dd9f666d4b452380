#include "torchps/security/roles.h"

#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace torchps {
namespace {

constexpr absl::string_view kScheme = "torchps://";
constexpr absl::string_view kSlotPrefix = "slot-";
constexpr size_t kLongestName = 64;

absl::Status CheckPart(absl::string_view what, absl::string_view part) {
  bool good = !part.empty() && part.size() <= kLongestName;
  for (const char c : part)
    good = good && (absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-');
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ", what, " '", part.substr(0, kLongestName), "' of an identity must consist of 1 to ",
      kLongestName, " characters from A-Z a-z 0-9 . _ -"));
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
    case Role::kOperator:
      return "operator";
  }
  return "?";
}

bool operator==(const Identity& a, const Identity& b) {
  return a.job == b.job && a.role == b.role && a.name == b.name;
}

absl::Status CheckIdentity(const Identity& identity) {
  if (absl::Status status = CheckPart("job", identity.job); !status.ok()) return status;
  if (absl::Status status = CheckPart("name", identity.name); !status.ok()) return status;
  SlotId slot = 0;
  absl::string_view number = identity.name;
  if (absl::ConsumePrefix(&number, kSlotPrefix) &&
      (!absl::SimpleAtoi(number, &slot) || slot < 0 || slot >= kMaxSlots)) {
    return absl::InvalidArgumentError(absl::StrCat("'", identity.name, "' is not a slot; expected ",
                                                   "slot-0 to slot-", kMaxSlots - 1));
  }
  return absl::OkStatus();
}

std::string ToUri(const Identity& identity) {
  return absl::StrCat(kScheme, identity.job, "/", RoleName(identity.role), "/", identity.name);
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view uri) {
  const absl::string_view whole = uri;
  std::vector<std::string> parts;
  if (absl::ConsumePrefix(&uri, kScheme)) parts = absl::StrSplit(uri, '/');
  if (parts.size() == 3) {
    for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
      if (parts[1] != RoleName(role)) continue;
      Identity identity{parts[0], role, parts[2]};
      if (absl::Status status = CheckIdentity(identity); !status.ok()) return status;
      return identity;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", whole.substr(0, 200), "' is not an identity; ",
      "expected torchps://JOB/ROLE/NAME with the role ", "server, worker or operator"));
}

std::optional<SlotId> BoundSlot(const Identity& identity) {
  absl::string_view number = identity.name;
  SlotId slot = 0;
  if (identity.role != Role::kWorker || !absl::ConsumePrefix(&number, kSlotPrefix) ||
      !absl::SimpleAtoi(number, &slot)) {
    return std::nullopt;
  }
  return slot;
}

namespace {

constexpr bool kYes = true;
constexpr bool kNo = false;

constexpr MethodRule kRules[] = {
    // method, request                                     server worker operator
    {"Hello", "HelloRequest", kNo, kYes, kNo},
    {"Push", "PushFrame", kNo, kYes, kNo},
    {"Pull", "PullRequest", kNo, kYes, kNo},
    {"Renew", "RenewRequest", kNo, kYes, kNo},
    // The coordinator reports expired slot leases to the servers.
    {"Leave", "LeaveRequest", kYes, kYes, kNo},
    {"Leave for good", kFarewell, kYes, kNo, kNo},
    {"GetServerStatus", "ServerStatusRequest", kYes, kYes, kYes},
    {"WriteShard", "WriteShardRequest", kYes, kNo, kNo},
    {"CommitCheckpoint", "CommitCheckpointRequest", kYes, kNo, kNo},
    {"StoreCopy", "StoreCopyRequest", kYes, kNo, kNo},
    {"DropCopies", "DropCopiesRequest", kYes, kNo, kNo},
    {"ListCopies", "ListCopiesRequest", kYes, kNo, kNo},
    {"ReadCopy", "ReadCopyRequest", kYes, kNo, kNo},
    {"Shutdown", "ShutdownRequest", kNo, kNo, kYes},
    {"Join", "JoinRequest", kNo, kYes, kNo},
    {"AwaitStart", "AwaitStartRequest", kNo, kYes, kNo},
    {"NextWork", "NextWorkRequest", kNo, kYes, kNo},
    {"RenewSlot", "RenewSlotRequest", kNo, kYes, kNo},
    {"ReportEvaluation", "ReportEvaluationRequest", kNo, kYes, kNo},
    {"StoreModel", "StoreModelRequest", kNo, kYes, kNo},
    {"RegisterServer", "RegisterServerRequest", kYes, kNo, kNo},
    {"LocateServers", "LocateServersRequest", kYes, kYes, kYes},
    {"LeaveJob", "LeaveJobRequest", kNo, kYes, kNo},
    // Calls between the processes of a replica.
    {"Meet", "RendezvousRequest", kNo, kYes, kNo},
    {"Deliver", "TensorMessage", kNo, kYes, kNo},
    // Servers call this during an orderly shutdown to write a last checkpoint.
    {"TakeCheckpoint", "TakeCheckpointRequest", kYes, kNo, kYes},
    {"GetJobStatus", "JobStatusRequest", kYes, kYes, kYes},
};

bool IsAllowed(const MethodRule& rule, Role role) {
  switch (role) {
    case Role::kServer:
      return rule.server;
    case Role::kWorker:
      return rule.worker;
    case Role::kOperator:
      return rule.operators;
  }
  return false;
}

}  // namespace

const MethodRule* FindMethodRule(absl::string_view request) {
  for (const MethodRule& rule : kRules) {
    if (rule.request == request) return &rule;
  }
  return nullptr;
}

absl::Status CheckMethod(const MethodRule& rule, const Identity& caller,
                         std::optional<SlotId> slot) {
  if (!IsAllowed(rule, caller.role)) {
    std::vector<absl::string_view> allowed;
    for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
      if (IsAllowed(rule, role)) allowed.push_back(RoleName(role));
    }
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate ", ToUri(caller), " may not call ", rule.method,
                     "; expected the role ", absl::StrJoin(allowed, " or ")));
  }
  const std::optional<SlotId> bound = BoundSlot(caller);
  if (bound.has_value() && slot.has_value() && *slot != *bound) {
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate ", ToUri(caller), " cannot speak for ",
                     *slot < 0 ? std::string("any slot") : absl::StrCat("slot ", *slot),
                     ", only for slot ", *bound, "; start the worker with --slot=", *bound));
  }
  return absl::OkStatus();
}

}  // namespace torchps
