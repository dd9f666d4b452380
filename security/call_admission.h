#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "grpcpp/server_context.h"

namespace torchps {

// Stands first in every handler: whether this caller may make this call. `request` is the name of
// the request message ("HelloRequest"), which tells the method; `slot` is the one that the call
// speaks for.
//
// Over TLS the caller is who its certificate says, which was verified when the connection was made
// (security/peer_check.h). Without TLS everybody is trusted whom the door let in
// (server/front_door.h), and so is a call from within this process.
//
// PERMISSION_DENIED: the role, or the slot. UNAUTHENTICATED: no identity where there must be one.
absl::Status AdmitCall(const grpc::ServerContext& context, absl::string_view request,
                       absl::optional<SlotId> slot);

namespace security_internal {

template <class Request>
auto SlotOf(const Request& request, int) -> decltype(absl::optional<SlotId>(request.slot())) {
  return request.slot();
}
// JoinRequest: -1 asks for any slot.
template <class Request>
auto SlotOf(const Request& request, int)
    -> decltype(absl::optional<SlotId>(request.wanted_slot())) {
  return request.wanted_slot();
}
template <class Request>
absl::optional<SlotId> SlotOf(const Request&, ...) {
  return absl::nullopt;
}

}  // namespace security_internal

// The same for a call whose request is at hand.
template <class Request>
absl::Status AdmitCall(const grpc::ServerContext& context, const Request& request) {
  return AdmitCall(context, Request::descriptor()->name(), security_internal::SlotOf(request, 0));
}

}  // namespace torchps
