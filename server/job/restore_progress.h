#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// How far a server is that brings a job back or makes room for it. Thread-safe.
class RestoreProgress {
 public:
  // A piece of that work begins. `what`: for people, as "reads checkpoint 7"; `total`: its parts,
  // all to be told of by Done(); 0: it is not known how many.
  void Begin(std::string what, int64_t total = 0) {
    MutexLock lock(&mutex_);
    what_ = std::move(what);
    done_ = 0;
    total_ = total;
  }

  // One more part.
  void Done() {
    MutexLock lock(&mutex_);
    ++done_;
  }

  Restoring Describe() const {
    MutexLock lock(&mutex_);
    Restoring restoring;
    restoring.set_what(what_);
    if (total_ > 0) restoring.set_part(static_cast<double>(done_) / static_cast<double>(total_));
    return restoring;
  }

 private:
  mutable Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t total_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
