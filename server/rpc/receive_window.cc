#include "server/rpc/receive_window.h"

#include <atomic>

#include "grpcpp/version_info.h"

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51
#define TORCHPS_GRPC_HAS_WINDOW_HOOK 1
#else
#define TORCHPS_GRPC_HAS_WINDOW_HOOK 0
#endif

#if TORCHPS_GRPC_HAS_WINDOW_HOOK
// gRPC's own, from a header that it does not install. Weak: a gRPC that hides its symbols has none.
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
#endif

namespace torchps {

#if TORCHPS_GRPC_HAS_WINDOW_HOOK
namespace {

class ChosenWindow final : public grpc_core::chttp2::TestOnlyTransportTargetWindowEstimatesMocker {
 public:
  double ComputeNextTargetInitialWindowSizeFromPeriodicUpdate(double /*current*/) override {
    return static_cast<double>(bytes_.load(std::memory_order_relaxed));
  }

  void Choose(int64_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> bytes_{0};
};

}  // namespace

bool CanSetReceiveWindow() {
  return &grpc_core::chttp2::g_test_only_transport_target_window_estimates_mocker != nullptr;
}

void SetReceiveWindow(int64_t bytes) {
  if (!CanSetReceiveWindow()) return;
  static ChosenWindow* const chosen = [bytes] {
    auto* const window = new ChosenWindow;
    window->Choose(bytes);
    grpc_core::chttp2::g_test_only_transport_target_window_estimates_mocker = window;
    return window;
  }();
  chosen->Choose(bytes);
}
#else
bool CanSetReceiveWindow() { return false; }

void SetReceiveWindow(int64_t /*bytes*/) {}
#endif

}  // namespace torchps
