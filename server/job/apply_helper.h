#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "common/mutex.h"

namespace torchps {

// A thread that lends a hand: blocks that a worker shares are all there at once, so a second core,
// if it is idle, applies half of them. The caller does the work itself and gets help if there is
// any; it never waits for help that has not begun. Both spin for a moment before they sleep.
//
// Thread-safe. Helps one caller at a time; the others work alone.
class ApplyHelper {
 public:
  ApplyHelper();
  // REQUIRES: no Run() is under way.
  ~ApplyHelper();
  ApplyHelper(const ApplyHelper&) = delete;
  ApplyHelper& operator=(const ApplyHelper&) = delete;

  // Calls work(0) to work(pieces - 1), each once, on this thread and perhaps on the helper's.
  // Returns when all have returned.
  void Run(size_t pieces, absl::FunctionRef<void(size_t piece)> work);

 private:
  // Work of one caller, on whose stack it lies.
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
  // Changes under the lock only.
  std::atomic<Task*> task_{nullptr};
  bool is_helping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace torchps
