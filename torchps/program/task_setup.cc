#include "torchps/program/task_setup.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "c10/util/Exception.h"
#include "torchps/common/process/command_line.h"
#include "torchps/worker/torch_error.h"

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

namespace {

// Global, because a terminate handler does not have parameters.
std::string* said_by = nullptr;
std::terminate_handler earlier = nullptr;

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception(); thrown != nullptr) {
      std::rethrow_exception(thrown);
    }
  } catch (const c10::Error& error) {
    const std::string what(TorchError("freeing torch's resources", error).message());
    std::fprintf(stderr, "%s: %s\n", said_by->c_str(), what.c_str());
    // Exit without destructors, because they may throw again.
    std::_Exit(static_cast<int>(ExitCode::kFailed));
  } catch (...) {
    // Not an exception from torch.
  }
  earlier();
  std::abort();
}

}  // namespace

void EndWellWhenTorchThrows(const char* program) {
  said_by = new std::string(program);
  earlier = std::set_terminate(OnTerminate);
}

}  // namespace torchps
