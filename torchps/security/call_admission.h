#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/server_context.h"
#include "torchps/common/log_line.h"
#include "torchps/common/types.h"
#include "torchps/security/log_throttle.h"

namespace torchps {

namespace security_internal {

template <class Request>
auto GetSlot(const Request& request, int) -> decltype(std::optional<SlotId>(request.slot())) {
  return request.slot();
}
// In a JoinRequest, -1 requests any slot.
template <class Request>
auto GetSlot(const Request& request, int)
    -> decltype(std::optional<SlotId>(request.wanted_slot())) {
  return request.wanted_slot();
}
template <class Request>
std::optional<SlotId> GetSlot(const Request&, ...) {
  return std::nullopt;
}

}  // namespace security_internal

// Decides at the start of each server method whether the caller may make this call.
//
// With TLS, the caller's identity is in the certificate, which was verified when the connection was
// established (torchps/security/credentials.h). Without TLS, all callers that pass the connection
// filter (torchps/server/rpc/connection_filter.h) are trusted. Calls from within this process are
// trusted as well.
//
// The caller receives a rejection as a status. The server also logs it: an operator who swapped two
// certificates may read the messages of either process.
//
// Thread-safe. Must outlive the calls.
class CallAdmission {
 public:
  // `log` receives log lines, limited by LogThrottle. Admit() invokes `called` on its own thread
  // for each call, admitted or not, to signal that the connection's handshake is complete. `called`
  // may be null.
  explicit CallAdmission(LogLine log,
                         std::function<void(const grpc::ServerContext& context)> called = nullptr);

  // `request` is the name of the request message ("HelloRequest") and identifies the method. `slot`
  // is the slot for which the call is made.
  //
  // Returns PERMISSION_DENIED if the role or slot may not make the call, and UNAUTHENTICATED if a
  // required identity is missing.
  absl::Status Admit(const grpc::ServerContext& context, absl::string_view request,
                     std::optional<SlotId> slot);

  // Like the other Admit(), but takes the method and the slot from `request`.
  template <class Request>
  absl::Status Admit(const grpc::ServerContext& context, const Request& request) {
    return Admit(context, Request::descriptor()->name(), security_internal::GetSlot(request, 0));
  }

 private:
  LogThrottle log_;
  const std::function<void(const grpc::ServerContext& context)> called_;
};

// Returns the caller's address, such as "127.0.0.1:4711" or "[::1]:4711". For calls from this
// process, the returned text is unspecified.
std::string CallerAddress(const grpc::ServerContext& context);

}  // namespace torchps
