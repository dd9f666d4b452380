#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace torchps {

// Tracks the job's progress by the pushes that a server received. Slow or paused slots may push
// gradients for samples assigned long ago, and must not turn the learning rate schedule back. Slots
// hold leases in parallel, so each push may be behind the latest by a slack.
// Thread-safe.
class LatestProgress {
 public:
  // `slack` is in the units of a push's progress.
  explicit LatestProgress(uint32_t slack) : slack_(slack) {}

  // Records a push's progress. Returns the progress to use: the push's, or the latest less the
  // slack if that is higher.
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
