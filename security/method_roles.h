#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "security/identity.h"

namespace torchps {

// The roles that may call a method.
struct MethodRule {
  absl::string_view method;   // "Push"
  absl::string_view request;  // request message, which identifies the method
  bool server = false;
  bool worker = false;
  bool operators = false;
};

// Pseudo message name for a Leave that ends an incarnation for good. Such a message carries no
// server incarnation and may only come from a coordinator.
inline constexpr absl::string_view kFarewell = "LeaveRequest for good";

// Returns the rule for the method with this request message, or null if it does not exist; then no
// role may call it. docs/security.md contains the whole table.
const MethodRule* FindMethodRule(absl::string_view request);

// Returns OK if the holder of a certificate may make this call for `slot` (nullopt: for no slot),
// otherwise PERMISSION_DENIED.
absl::Status CheckMethod(const MethodRule& rule, const Identity& caller,
                         absl::optional<SlotId> slot);

}  // namespace torchps
