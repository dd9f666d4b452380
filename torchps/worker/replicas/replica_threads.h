#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Runs one thread per replica; the first replica uses the caller's thread. The threads persist,
// because torch keeps per-thread state between steps (the OpenMP team, the current device).
//
// Thread-compatible: one thread calls Run().
class ReplicaThreads {
 public:
  // Work of one member. Must not throw.
  using Work = std::function<void(size_t member)>;

  explicit ReplicaThreads(size_t members);
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Calls work(i) on each member's thread concurrently. Returns when each call has returned.
  void Run(const Work& work);

 private:
  void Serve(size_t member);

  Mutex mutex_;
  CondVar changed_;
  const Work* work_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // Number of started runs.
  uint64_t runs_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of working members, except the first.
  size_t busy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace torchps
