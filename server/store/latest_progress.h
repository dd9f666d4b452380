#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace torchps {

// How far a job is by the pushes that a server has met, for gradients whose samples were handed out
// long before: a slot that is slow or was stopped would take the learning rate back in time with
// it. Equal slots have leases side by side, so each push may be behind the latest by a slack.
// Thread-safe.
class LatestProgress {
 public:
  // In the units of a push's progress.
  explicit LatestProgress(uint32_t slack) : slack_(slack) {}

  // A push with this progress has come. Returns what it counts as: its own, or the latest less the
  // slack.
  uint32_t Meet(uint32_t progress) {
    uint32_t latest = latest_.load(std::memory_order_relaxed);
    while (progress > latest &&
           !latest_.compare_exchange_weak(latest, progress, std::memory_order_relaxed)) {
    }
    latest = std::max(latest, progress);
    return std::max(progress, latest - std::min(latest, slack_));
  }

 private:
  const uint32_t slack_;
  std::atomic<uint32_t> latest_{0};
};

}  // namespace torchps
