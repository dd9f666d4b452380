#include "security/call_admission.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"
#include "security/method_roles.h"

namespace torchps {
namespace {

// What gRPC says of a connection without TLS.
constexpr absl::string_view kInsecure = "insecure";

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status AdmitCall(const grpc::ServerContext& context, absl::string_view request,
                       absl::optional<SlotId> slot) {
  const MethodRule* const rule = FindMethodRule(request);
  if (rule == nullptr) {
    return absl::PermissionDeniedError(absl::StrCat("nobody may call a method with ", request));
  }
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
  return CheckMethod(*rule, *caller, slot);
}

}  // namespace torchps
