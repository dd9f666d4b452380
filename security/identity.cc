#include "security/identity.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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

absl::optional<SlotId> BoundSlot(const Identity& identity) {
  absl::string_view number = identity.name;
  SlotId slot = 0;
  if (identity.role != Role::kWorker || !absl::ConsumePrefix(&number, kSlotPrefix) ||
      !absl::SimpleAtoi(number, &slot)) {
    return absl::nullopt;
  }
  return slot;
}

}  // namespace torchps
