#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "security/identity.h"

namespace torchps {

// Which roles may call a method.
struct MethodRule {
  absl::string_view method;   // "Push"
  absl::string_view request;  // name of its request message, which belongs to this method alone
  bool server = false;
  bool worker = false;
  bool operators = false;
};

// What stands for the message of a Leave that ends an incarnation for good: one of no server's
// life, which only a coordinator says.
inline constexpr absl::string_view kFarewell = "LeaveRequest for good";

// The rule of the method that takes this message; null: there is none, and no role may call it.
// docs/security.md has the whole table.
const MethodRule* FindMethodRule(absl::string_view request);

// Whether the holder of a certificate may make this call, which speaks for `slot` (nullopt: for no
// slot). PERMISSION_DENIED in one sentence.
absl::Status CheckMethod(const MethodRule& rule, const Identity& caller,
                         absl::optional<SlotId> slot);

}  // namespace torchps
