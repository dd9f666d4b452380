// Tests encoded gradients and encoded values on a server's blocks.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "tests/testing/job_harness.h"
#include "torchps/transport/encoding.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kElements = 3000;
constexpr double kFraction = 0.1;

std::vector<float> Wave(float scale) {
  std::vector<float> wave(kElements);
  for (int64_t i = 0; i < kElements; ++i) wave[i] = scale * std::sin(0.01f * static_cast<float>(i));
  return wave;
}

std::string Bytes(EncodingSpec::Kind kind, const std::vector<float>& elements) {
  std::string bytes(EncodedBytes(kind, static_cast<int64_t>(elements.size()), kFraction), '\0');
  Encode(kind, elements, kFraction, reinterpret_cast<uint8_t*>(&bytes[0]));
  return bytes;
}

FramePayload Payload(EncodingSpec::Kind kind, const std::string& bytes) {
  return FramePayload({grpc::Slice(bytes)}, 0, kind);
}

std::vector<float> Decoded(EncodingSpec::Kind kind, const std::string& bytes) {
  std::vector<float> elements(kElements);
  Payload(kind, bytes).CopyTo(absl::MakeSpan(elements));
  return elements;
}

// Makes a trained block of kElements and an averaged block, both with values of 1, under plain SGD
// with rate 1.
class EncodedBlocksTest : public ::testing::TestWithParam<EncodingSpec::Kind> {
 protected:
  static std::unique_ptr<JobHarness> Ready(const std::string& job) {
    JobHarness::Options options;
    options.trained = kElements;
    options.averaged = 4;
    options.block_elements = kElements;
    options.job = job;
    auto harness = std::make_unique<JobHarness>(options);
    EXPECT_TRUE(harness->Enter(0, 1).ok());
    EXPECT_TRUE(harness->Enter(1, 2).ok());
    EXPECT_TRUE(harness->Initialize(0, 1, 1.0f).ok());
    return harness;
  }

  static PushHeader Header(SlotId slot, Step step, BlockId block = 0) {
    PushHeader header;
    header.slot = slot;
    header.incarnation = static_cast<Incarnation>(slot + 1);
    header.step = step;
    header.block = block;
    header.weight = 1;
    return header;
  }

  static std::vector<float> Values(JobHarness& harness) {
    const auto copy = harness.job().store().Read(0);
    EXPECT_TRUE(copy.ok());
    return Decoded(
        EncodingSpec::FLOAT32,
        std::string(reinterpret_cast<const char*>(copy->values.begin()), copy->values.size()));
  }

  const EncodingSpec::Kind kind_ = GetParam();
};

TEST_P(EncodedBlocksTest, AppliesTheDecodedGradientInAsync) {
  const auto harness = Ready("");
  const std::string bytes = Bytes(kind_, Wave(0.5f));
  ASSERT_TRUE(harness->job().PushFrame(Header(0, 1), Payload(kind_, bytes)).ok());
  const std::vector<float> gradient = Decoded(kind_, bytes);
  const std::vector<float> values = Values(*harness);
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(values[i], 1.0f - gradient[i]) << i;
}

TEST_P(EncodedBlocksTest, AppliesTheDecodedMeanInSyncMode) {
  const auto harness = Ready("consistency { mode: SYNC }");
  const std::string bytes = Bytes(kind_, Wave(0.5f));
  const std::vector<float> gradient = Decoded(kind_, bytes);
  ASSERT_TRUE(harness->job().PushFrame(Header(0, 1), Payload(kind_, bytes)).ok());
  // The slots of a round may use different encodings.
  ASSERT_TRUE(harness->job()
                  .PushFrame(Header(1, 1), Payload(EncodingSpec::FLOAT32,
                                                   Bytes(EncodingSpec::FLOAT32, Wave(-0.25f))))
                  .ok());
  const std::vector<float> other = Wave(-0.25f);
  const std::vector<float> values = Values(*harness);
  for (int64_t i = 0; i < kElements; ++i) {
    ASSERT_FLOAT_EQ(values[i], 1.0f - (gradient[i] + other[i]) * 0.5f) << i;
  }
}

TEST_P(EncodedBlocksTest, RejectsAMalformedPayload) {
  const auto harness = Ready("");
  const std::string bytes = Bytes(kind_, Wave(0.5f));
  std::string not_finite = bytes;
  // Makes the last element NaN through its highest bytes. In INT8 it makes the scale NaN, because
  // elements cannot be.
  const size_t at = kind_ == EncodingSpec::INT8 ? 3 : bytes.size() - 1;
  not_finite[at] = '\x7f';
  not_finite[at - 1] = '\xff';
  for (const std::string& wrong : {bytes.substr(1), bytes + "x", std::string(), not_finite}) {
    const absl::Status status = harness->job().PushFrame(Header(0, 1), Payload(kind_, wrong));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(Values(*harness), std::vector<float>(kElements, 1.0f));
    EXPECT_EQ(harness->GetVersion(0), 0);
  }
  EXPECT_TRUE(harness->job().PushFrame(Header(0, 1), Payload(kind_, bytes)).ok());
}

TEST_P(EncodedBlocksTest, APullReturnsTheRequestedEncoding) {
  if (kind_ == EncodingSpec::TOP_K) GTEST_SKIP() << "not for pulls";
  const auto harness = Ready("");
  ASSERT_TRUE(harness->job()
                  .PushFrame(Header(0, 1), Payload(EncodingSpec::FLOAT32,
                                                   Bytes(EncodingSpec::FLOAT32, Wave(0.5f))))
                  .ok());
  const std::vector<float> values = Values(*harness);
  const auto copy = harness->job().store().Read(0, kind_);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->encoding, kind_);
  EXPECT_EQ(copy->version, 1);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(copy->values.begin()), copy->values.size()),
            Bytes(kind_, values));
}

TEST_P(EncodedBlocksTest, InitialAndAveragedValuesUseFloat32) {
  const auto harness = Ready("");
  const std::string averaged = Bytes(kind_, {1.0f, 2.0f, 3.0f, 4.0f});
  const bool lossy = kind_ != EncodingSpec::FLOAT32;
  const absl::Status pushed = harness->job().PushFrame(Header(0, 1, 1), Payload(kind_, averaged));
  EXPECT_EQ(pushed.ok(), !lossy) << pushed;
  const absl::Status initial =
      harness->job().PushFrame(Header(0, 0), Payload(kind_, Bytes(kind_, Wave(1.0f))));
  EXPECT_EQ(initial.ok(), !lossy) << initial;
  if (lossy) {
    EXPECT_THAT(std::string(pushed.message()),
                AllOf(HasSubstr("block 1 came in " + EncodingSpec::Kind_Name(kind_)),
                      HasSubstr("averaged values travel in FLOAT32")));
    EXPECT_THAT(std::string(initial.message()), HasSubstr("initial values travel in FLOAT32"));
  }
  if (kind_ == EncodingSpec::TOP_K) return;
  const auto copy = harness->job().store().Read(1, kind_);
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->encoding, EncodingSpec::FLOAT32);
  EXPECT_EQ(copy->values.size(), 4 * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(All, EncodedBlocksTest,
                         ::testing::Values(EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16,
                                           EncodingSpec::INT8, EncodingSpec::TOP_K),
                         EncodingName);

}  // namespace
}  // namespace torchps
