#include "server/rpc/connection_name.h"

#include "absl/strings/match.h"

namespace torchps {

std::string ConnectionName(const grpc::ServerContext& context) {
  std::string peer = context.peer();
  if (absl::StartsWith(peer, "inproc")) peer.clear();
  return peer;
}

}  // namespace torchps
