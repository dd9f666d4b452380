#include <signal.h>

#include <stdexcept>
#include <string>

#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "torch/types.h"
#include "torchps/program/task_setup.h"

namespace torchps {
namespace {

template <typename Error>
class ThrowsAtItsEnd {
 public:
  explicit ThrowsAtItsEnd(const Error& error) : error_(error) {}
  ~ThrowsAtItsEnd() { Throw(); }

 private:
  void Throw() const { throw Error(error_); }

  const Error error_;
};

c10::Error Assert() {
  return {{"", "", 0}, "CUDA error: device-side assert triggered\nFor debugging consider that."};
}

// Uses gtest's "threadsafe" style, because torch has threads already.
class TorchTerminateDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

constexpr char kSentence[] =
    "^a_worker: freeing torch's resources failed: CUDA error: device-side assert triggered\n$";

TEST_F(TorchTerminateDeathTest, TorchErrorsInDestructorsExitWithAMessage) {
  EXPECT_EXIT(
      {
        EndWellWhenTorchThrows("a_worker");
        const ThrowsAtItsEnd<c10::Error> end(Assert());
      },
      testing::ExitedWithCode(1), kSentence);
}

TEST_F(TorchTerminateDeathTest, ExitsWithAMessageDuringAnotherError) {
  EXPECT_EXIT(
      {
        EndWellWhenTorchThrows("a_worker");
        try {
          const ThrowsAtItsEnd<c10::Error> end(Assert());
          throw std::runtime_error("the step has failed");
        } catch (const std::runtime_error&) {
        }
      },
      testing::ExitedWithCode(1), kSentence);
}

TEST_F(TorchTerminateDeathTest, AnErrorWhileATensorIsFreedExitsWithAMessage) {
  EXPECT_EXIT(
      {
        EndWellWhenTorchThrows("a_worker");
        float element = 0;
        // torch's allocators throw in the deleter like this after a GPU failure.
        torch::from_blob(&element, {1}, [](void*) { throw Assert(); });
      },
      testing::ExitedWithCode(1), kSentence);
}

TEST_F(TorchTerminateDeathTest, OtherExceptionsAbort) {
  EXPECT_EXIT(
      {
        EndWellWhenTorchThrows("a_worker");
        const ThrowsAtItsEnd<std::runtime_error> end(std::runtime_error("ours"));
      },
      testing::KilledBySignal(SIGABRT), "runtime_error");
}

}  // namespace
}  // namespace torchps
