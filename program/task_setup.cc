#include "program/task_setup.h"

namespace torchps {

absl::Status TaskSetup::Begin() {
  const MutexLock lock(&mutex_);
  is_making_ = !stopped_;
  return status();
}

absl::Status TaskSetup::End() {
  const MutexLock lock(&mutex_);
  is_making_ = false;
  return status();
}

bool TaskSetup::Stop(const std::string& reason) {
  const MutexLock lock(&mutex_);
  stopped_ = true;
  reason_ = reason;
  return is_making_;
}

}  // namespace torchps
