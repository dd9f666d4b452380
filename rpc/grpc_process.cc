#include "rpc/grpc_process.h"

#include <malloc.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "grpc/grpc.h"

namespace torchps {

namespace {

// Larger than any frame buffer and than the total free memory.
constexpr int kKeptBytes = 1 << 30;

}  // namespace

void PrepareGrpcProcess() {
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200", /*overwrite=*/0);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning,tcp_rcv_lowat", /*overwrite=*/0);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Holds a reference that is never released.
  grpc_init();
}

}  // namespace torchps
