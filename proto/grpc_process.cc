#include "proto/grpc_process.h"

#include <cstdlib>

#include "grpc/grpc.h"

namespace torchps {

void PrepareGrpcProcess() {
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200", /*overwrite=*/0);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // The reference that is never given back.
  grpc_init();
}

}  // namespace torchps
