#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Lets a second thread share one caller's work if a core is idle. Because a frame from shared
// memory brings many blocks at the same time, two threads can apply them in parallel. The caller
// works as well, and never waits for a helper that is still idle. Both threads spin for a moment
// before they sleep.
//
// Thread-safe. Helps one caller at a time; other callers work alone.
class ApplyHelper {
 public:
  ApplyHelper();
  // REQUIRES: Run() is not in progress.
  ~ApplyHelper();
  ApplyHelper(const ApplyHelper&) = delete;
  ApplyHelper& operator=(const ApplyHelper&) = delete;

  // Calls work(0) to work(pieces - 1), each once, on this thread and maybe on the helper thread.
  // Returns when all calls have returned.
  void Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work);

 private:
  // One caller's work, on the caller's stack.
  struct Task {
    void DoPieces() {
      for (size_t piece = next++; piece < pieces; piece = next++) work(piece);
    }
    const size_t pieces;
    const absl::FunctionRef<void(size_t)> work;
    std::atomic<size_t> next{0};
  };

  void Help();

  Mutex mutex_;
  CondVar changed_;
  // Written under `mutex_`, but read without it while a thread spins.
  std::atomic<Task*> task_{nullptr};
  bool is_helping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
