#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "common/ids.h"
#include "grpcpp/server_context.h"
#include "security/log_throttle.h"

namespace torchps {

namespace security_internal {

template <class Request>
auto GetSlot(const Request& request, int) -> decltype(absl::optional<SlotId>(request.slot())) {
  return request.slot();
}
// JoinRequest: -1 asks for any slot.
template <class Request>
auto GetSlot(const Request& request, int)
    -> decltype(absl::optional<SlotId>(request.wanted_slot())) {
  return request.wanted_slot();
}
template <class Request>
absl::optional<SlotId> GetSlot(const Request&, ...) {
  return absl::nullopt;
}

}  // namespace security_internal

// Stands first in every handler of a server: whether this caller may make this call.
//
// Over TLS the caller is who its certificate says, which was verified when the connection was made
// (security/credentials.h). Without TLS everybody is trusted whom the connection filter let in
// (server/rpc/connection_filter.h), and so is a call from within this process.
//
// A refusal goes to the caller as a status, and one sentence of it to the server's own people: an
// operator who has mixed up two certificates looks at either end.
//
// Thread-safe. Outlives the calls.
class CallAdmission {
 public:
  // `log` takes the sentences, as LogThrottle does: each once in ten seconds, ten of them at most.
  // `called` hears of every call, admitted or not: its connection's handshake is over. It runs on
  // the caller's thread; null: nothing does.
  explicit CallAdmission(std::function<void(const std::string& line)> log,
                         std::function<void(const grpc::ServerContext& context)> called = nullptr);

  // `request` is the name of the request message ("HelloRequest"), which tells the method; `slot`
  // is the one that the call speaks for.
  //
  // PERMISSION_DENIED: the role, or the slot. UNAUTHENTICATED: no identity where there must be one.
  absl::Status Admit(const grpc::ServerContext& context, absl::string_view request,
                     absl::optional<SlotId> slot);

  // The same for a call whose request is at hand.
  template <class Request>
  absl::Status Admit(const grpc::ServerContext& context, const Request& request) {
    return Admit(context, Request::descriptor()->name(), security_internal::GetSlot(request, 0));
  }

 private:
  LogThrottle log_;
  const std::function<void(const grpc::ServerContext& context)> called_;
};

// Where a call comes from, as "127.0.0.1:4711" or "[::1]:4711"; of a call from within this process
// something else.
std::string CallerAddress(const grpc::ServerContext& context);

}  // namespace torchps
