#include "torchps/server/rpc/receive_window.h"

#include <atomic>

#include "grpcpp/version_info.h"

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51

// gRPC internals from a header that is not installed. Weak, because a gRPC with hidden symbols
// lacks the variable.
namespace grpc_core {
namespace chttp2 {

class TestOnlyTransportTargetWindowEstimatesMocker {
 public:
  virtual ~TestOnlyTransportTargetWindowEstimatesMocker() = default;
  virtual double ComputeNextTargetInitialWindowSizeFromPeriodicUpdate(double current_target) = 0;
};

extern TestOnlyTransportTargetWindowEstimatesMocker*
    g_test_only_transport_target_window_estimates_mocker __attribute__((weak));

}  // namespace chttp2
}  // namespace grpc_core

namespace torchps {
namespace {

std::atomic<int64_t> chosen_bytes{0};

class ChosenWindow final : public grpc_core::chttp2::TestOnlyTransportTargetWindowEstimatesMocker {
 public:
  double ComputeNextTargetInitialWindowSizeFromPeriodicUpdate(double /*current*/) override {
    return static_cast<double>(chosen_bytes.load(std::memory_order_relaxed));
  }
};

}  // namespace

bool CanSetReceiveWindow() {
  return &grpc_core::chttp2::g_test_only_transport_target_window_estimates_mocker != nullptr;
}

void SetReceiveWindow(int64_t bytes) {
  if (!CanSetReceiveWindow()) return;
  chosen_bytes.store(bytes, std::memory_order_relaxed);
  // Never destroyed, because gRPC's threads outlive main.
  static auto* const window =
      grpc_core::chttp2::g_test_only_transport_target_window_estimates_mocker = new ChosenWindow;
  static_cast<void>(window);
}

}  // namespace torchps

#else

namespace torchps {

bool CanSetReceiveWindow() { return false; }

void SetReceiveWindow(int64_t /*bytes*/) {}

}  // namespace torchps

#endif
