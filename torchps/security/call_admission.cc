#include "torchps/security/call_admission.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "torchps/security/roles.h"

namespace torchps {
namespace {

// gRPC's transport security type of a connection without TLS.
constexpr absl::string_view kInsecure = "insecure";

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Returns the host without the port. Each connection uses a different port, and only the host
// matters in messages.
std::string CallerHost(const grpc::ServerContext& context) {
  const std::string address = CallerAddress(context);
  return address.substr(0, address.rfind(':'));
}

absl::Status Check(const grpc::ServerContext& context, const MethodRule& rule,
                   std::optional<SlotId> slot) {
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection == nullptr) return absl::OkStatus();
  const std::vector<grpc::string_ref> transport =
      connection->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (transport.empty() || View(transport.front()) == kInsecure) {
    return absl::OkStatus();
  }
  const std::vector<grpc::string_ref> uris =
      connection->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  if (uris.size() != 1) {
    return absl::UnauthenticatedError(
        absl::StrCat("the caller's certificate has ", uris.size(), " URIs; expected one"));
  }
  const absl::StatusOr<Identity> caller = ParseIdentity(View(uris.front()));
  if (!caller.ok()) return absl::UnauthenticatedError(caller.status().message());
  return CheckMethod(rule, *caller, slot);
}

}  // namespace

std::string CallerAddress(const grpc::ServerContext& context) {
  // gRPC returns "ipv4:127.0.0.1:4711" or "ipv6:%5B::1%5D:4711".
  const std::string peer = context.peer();
  const size_t kind = peer.find(':');
  return absl::StrReplaceAll(kind == peer.npos ? peer : peer.substr(kind + 1),
                             {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

CallAdmission::CallAdmission(LogLine log,
                             std::function<void(const grpc::ServerContext& context)> called)
    : log_(std::move(log)), called_(std::move(called)) {}

absl::Status CallAdmission::Admit(const grpc::ServerContext& context, absl::string_view request,
                                  std::optional<SlotId> slot) {
  if (called_ != nullptr) called_(context);
  const MethodRule* const rule = FindMethodRule(request);
  const absl::Status status =
      rule == nullptr
          ? absl::PermissionDeniedError(absl::StrCat("no role may call a method with ", request))
          : Check(context, *rule, slot);
  if (!status.ok()) {
    log_.Log(absl::StrCat("refused ", rule == nullptr ? request : rule->method, " to a client at ",
                          CallerHost(context), ": ", status.message()),
             absl::Now());
  }
  return status;
}

}  // namespace torchps
