#include "torchps/transport/frame_payload.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/slicing.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

std::vector<float> Counting(int64_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

std::string GetBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// Returns the elements from ForEachRun(). Fails if a run is empty, or if runs leave gaps.
std::vector<float> CollectRuns(const FramePayload& payload) {
  std::vector<float> collected;
  payload.ForEachRun(payload.bytes() / 4, [&](int64_t first, absl::Span<const float> run) {
    EXPECT_EQ(first, static_cast<int64_t>(collected.size()));
    EXPECT_FALSE(run.empty());
    // Uses memcpy(), because the run may begin at any byte address.
    collected.resize(collected.size() + run.size());
    std::memcpy(&collected[first], run.data(), run.size() * sizeof(float));
  });
  return collected;
}

std::vector<float> Copied(const FramePayload& payload) {
  std::vector<float> copied(payload.bytes() / sizeof(float));
  payload.CopyTo(absl::MakeSpan(copied));
  return copied;
}

TEST(FramePayloadTest, HasNoElementsAtFirst) {
  const FramePayload payload;
  EXPECT_EQ(payload.bytes(), 0u);
  EXPECT_TRUE(payload.Check(0).ok());
  EXPECT_TRUE(CollectRuns(payload).empty());
  payload.CopyTo({});
}

TEST(FramePayloadTest, ReadsASliceInPlace) {
  const std::vector<float> values = Counting(5000);
  const grpc::Slice slice(values.data(), values.size() * sizeof(float), grpc::Slice::STATIC_SLICE);
  const FramePayload payload({slice});
  int runs = 0;
  payload.ForEachRun(5000, [&](int64_t first, absl::Span<const float> run) {
    ++runs;
    EXPECT_EQ(first, 0);
    EXPECT_EQ(run.data(), values.data());
    EXPECT_EQ(run.size(), values.size());
  });
  EXPECT_EQ(runs, 1);
}

TEST(FramePayloadTest, ReadsAMisalignedSlice) {
  const std::vector<float> values = Counting(5000);
  for (size_t shift = 0; shift < sizeof(float); ++shift) {
    const std::string bytes = std::string(shift, 'x') + GetBytes(values);
    const FramePayload payload({grpc::Slice(bytes)}, shift);
    EXPECT_TRUE(payload.Check(5000).ok());
    EXPECT_EQ(CollectRuns(payload), values);
    EXPECT_EQ(Copied(payload), values);
  }
}

TEST(FramePayloadTest, SkippedBytesMayEndInALaterSlice) {
  const std::vector<float> values = Counting(3);
  const FramePayload payload(
      {grpc::Slice("abcdef"), grpc::Slice("gh"), grpc::Slice("i" + GetBytes(values))}, 9);
  EXPECT_EQ(CollectRuns(payload), values);
}

TEST(FramePayloadTest, ReadsAPayloadThatIsCutIntoSlicesAnywhere) {
  uint64_t random_state = 20240501;
  SCOPED_TRACE(testing::Message() << "seed " << random_state);
  for (const int64_t count : {1, 2, 3, 17, 1023, 1024, 1025, 4000}) {
    const std::vector<float> values = Counting(count);
    for (const size_t longest : {1, 2, 3, 5, 64, 4097, 9000}) {
      SCOPED_TRACE(testing::Message() << count << " elements, slices up to " << longest);
      const size_t skipped = UniformBelow(random_state, 10);
      const FramePayload payload(
          CutAnywhere(std::string(skipped, 'x') + GetBytes(values), longest, random_state),
          skipped);
      EXPECT_EQ(CollectRuns(payload), values);
      EXPECT_EQ(Copied(payload), values);
      std::string bytes(payload.bytes(), '?');
      payload.CopyBytesTo(reinterpret_cast<uint8_t*>(bytes.data()));
      EXPECT_EQ(bytes, GetBytes(values));
    }
  }
}

TEST(FramePayloadTest, ACopyKeepsTheBytesAlive) {
  bool released = false;
  float element = 7.0f;
  FramePayload copy;
  {
    const grpc::Slice slice(
        &element, sizeof(element), [](void* flag) { *static_cast<bool*>(flag) = true; }, &released);
    const FramePayload payload({slice});
    copy = payload;
  }
  EXPECT_FALSE(released);
  EXPECT_EQ(Copied(copy), std::vector<float>{7.0f});
  copy = FramePayload();
  EXPECT_TRUE(released);
}

TEST(FramePayloadDeathTest, RefusesToSkipTooManyBytes) {
  EXPECT_DEATH(FramePayload({grpc::Slice("abcdef")}, 7), "no more is skipped than there is");
}

TEST(FramePayloadDeathTest, RefusesToReadAnotherLengthThanItsOwn) {
  float elements[3];
  EXPECT_DEATH(FramePayload({grpc::Slice("abcdefgh")}).CopyTo(absl::MakeSpan(elements)),
               "has been checked");
}

}  // namespace
}  // namespace torchps
