// Tests the CUDA calls that pin memory, against functions that record the calls.

#include "torchps/worker/cuda/pinned_memory.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string>* called = nullptr;
void* pinned_at = nullptr;
size_t pinned_bytes = 0;
int answer = 0;

CudaPinning Functions() {
  CudaPinning cuda;
  cuda.pin = [](void* memory, size_t bytes, unsigned) {
    called->push_back("pin");
    pinned_at = memory;
    pinned_bytes = bytes;
    return answer;
  };
  cuda.unpin = [](void* memory) {
    called->push_back(memory == pinned_at ? "unpin" : "unpin something else");
    return answer;
  };
  cuda.error_text = [](int) { return "out of memory"; };
  cuda.forget_error = [] {
    called->push_back("forget the error");
    return answer;
  };
  return cuda;
}

class PinnedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    called = &called_;
    answer = 0;
  }

  std::vector<std::string> called_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(8192);
};

TEST_F(PinnedMemoryTest, StaysPinnedWhileTheObjectLives) {
  auto pinned = PinnedMemory::Create(Functions(), absl::MakeSpan(memory_));
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned_at, memory_.data());
  EXPECT_EQ(pinned_bytes, memory_.size());
  EXPECT_THAT(called_, ElementsAre("pin"));
  pinned->reset();
  EXPECT_THAT(called_, ElementsAre("pin", "unpin"));
}

TEST_F(PinnedMemoryTest, ARefusedPinIsUnavailableAndClearsCudasError) {
  answer = 2;
  const auto pinned = PinnedMemory::Create(Functions(), absl::MakeSpan(memory_));
  EXPECT_EQ(pinned.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(pinned.status().message()), HasSubstr("out of memory"));
  EXPECT_THAT(called_, ElementsAre("pin", "forget the error"));
}

TEST_F(PinnedMemoryTest, AnUnpinningErrorIsCleared) {
  auto pinned = PinnedMemory::Create(Functions(), absl::MakeSpan(memory_));
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  answer = 4;
  pinned->reset();
  EXPECT_THAT(called_, ElementsAre("pin", "unpin", "forget the error"));
}

}  // namespace
}  // namespace torchps
