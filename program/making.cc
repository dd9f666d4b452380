#include "program/making.h"

namespace torchps {

absl::Status Making::Begin() {
  const MutexLock lock(&mutex_);
  is_making_ = !stopped_;
  return status();
}

absl::Status Making::End() {
  const MutexLock lock(&mutex_);
  is_making_ = false;
  return status();
}

bool Making::Stop(const std::string& reason) {
  const MutexLock lock(&mutex_);
  stopped_ = true;
  reason_ = reason;
  return is_making_;
}

}  // namespace torchps
