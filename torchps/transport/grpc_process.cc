#include "torchps/transport/grpc_process.h"

#include <malloc.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "grpc/grpc.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "torchps/transport/server_address.h"

namespace torchps {
namespace {

// Larger than any frame buffer, so that malloc() never maps a buffer separately. Also larger than
// the memory that the process frees, so that malloc() never returns it to the system.
constexpr int kKeptBytes = 1 << 30;

}  // namespace

void PrepareGrpcProcess() {
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200", /*overwrite=*/0);
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning,tcp_rcv_lowat", /*overwrite=*/0);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Takes a reference that is never released, so that gRPC is never shut down.
  grpc_init();
}

namespace {

constexpr int kInitialBackoffMs = 100;
// Also the time that gRPC gives to an attempt to connect. A TLS handshake over a slow link takes
// about 0.3 s.
constexpr int kMinBackoffMs = 1'000;
constexpr int kMaxBackoffMs = 1'000;
constexpr int kNameLookupMs = 1'000;

}  // namespace

void FindAgainSoon(grpc::ChannelArguments* arguments) {
  arguments->SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kInitialBackoffMs);
  arguments->SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments->SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  arguments->SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kNameLookupMs);
}

std::string ChannelTarget(const std::string& address) {
  const bool is_known = !address.empty() && !IsAddressFile(address);
  return is_known ? address : "unix:/nonexistent/torchps-server";
}

}  // namespace torchps
