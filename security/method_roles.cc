#include "security/method_roles.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {
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
                         absl::optional<SlotId> slot) {
  if (!IsAllowed(rule, caller.role)) {
    std::vector<absl::string_view> allowed;
    for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
      if (IsAllowed(rule, role)) allowed.push_back(RoleName(role));
    }
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate ", ToUri(caller), " may not call ", rule.method,
                     "; expected the role ", absl::StrJoin(allowed, " or ")));
  }
  const absl::optional<SlotId> bound = BoundSlot(caller);
  if (bound.has_value() && slot.has_value() && *slot != *bound) {
    return absl::PermissionDeniedError(
        absl::StrCat("the certificate ", ToUri(caller), " cannot speak for ",
                     *slot < 0 ? std::string("any slot") : absl::StrCat("slot ", *slot),
                     ", only for slot ", *bound, "; start the worker with --slot=", *bound));
  }
  return absl::OkStatus();
}

}  // namespace torchps
