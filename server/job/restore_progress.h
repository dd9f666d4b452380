#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// Progress of a server that restores a job or allocates memory for a new one. Thread-safe.
class RestoreProgress {
 public:
  // Begins a phase. `what` describes the phase to people, for example "reads checkpoint 7". `total`
  // is the number of Done() calls to expect; 0 if unknown.
  void Begin(std::string what, int64_t total = 0) {
    MutexLock lock(&mutex_);
    what_ = std::move(what);
    done_ = 0;
    total_ = total;
  }

  // Counts one finished part.
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
