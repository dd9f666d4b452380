// Tests the contract in torchps/transport/encoding.h and torchps/transport/frame_payload.h, with
// each encoding on each instruction set of this machine.

#include "torchps/transport/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "tests/transport/slicing.h"
#include "torchps/common/hash.h"
#include "torchps/transport/encoding_elements.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallestNormal = std::numeric_limits<float>::min();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kFraction = 0.1;

const int64_t kLengths[] = {1, 2, 3, 17, 1023, 1024, 1025, 2048, 2500, 5000};

// Returns numbers of the magnitudes found in gradients, with both signs and some zeros.
std::vector<float> Gradient(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    const uint64_t random = SplitMix64(seed);
    value = std::ldexp(static_cast<float>(UnitDouble(SplitMix64(seed))) - 0.5f,
                       static_cast<int>(random % 24) - 20);
    if (random % 17 == 0) value = 0;
  }
  return values;
}

std::string Encoded(EncodingSpec::Kind kind, const std::vector<float>& values,
                    InstructionSet set = BestInstructionSet()) {
  const auto count = static_cast<int64_t>(values.size());
  // The buffer has one more byte at each end. So the encoder writes at an odd address, and the test
  // detects a write outside of its bytes.
  std::string bytes(EncodedBytes(kind, count, kFraction) + 2, '\x5a');
  Encode(kind, values, kFraction, reinterpret_cast<uint8_t*>(&bytes[1]), set);
  EXPECT_EQ(bytes.front(), '\x5a');
  EXPECT_EQ(bytes.back(), '\x5a');
  return bytes.substr(1, bytes.size() - 2);
}

std::vector<float> Decoded(const FramePayload& payload, int64_t count) {
  std::vector<float> values(count, -99.0f);
  payload.CopyTo(absl::MakeSpan(values));
  return values;
}

FramePayload ReadPayload(EncodingSpec::Kind kind, const std::string& bytes) {
  return FramePayload({grpc::Slice(bytes)}, 0, kind);
}

std::vector<float> RoundTrip(EncodingSpec::Kind kind, const std::vector<float>& values,
                             InstructionSet set = BestInstructionSet()) {
  std::vector<float> decoded(values.size());
  const std::string bytes = Encoded(kind, values, set);
  Decode(kind, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
         absl::MakeSpan(decoded), set);
  return decoded;
}

// Returns the largest allowed error for element i of `values`.
float Tolerance(EncodingSpec::Kind kind, const std::vector<float>& values, size_t i) {
  const float magnitude = std::abs(values[i]);
  switch (kind) {
    case EncodingSpec::BFLOAT16:
      return magnitude / 256 + 0x1p-134f;
    case EncodingSpec::INT8: {
      const size_t group = i / kInt8GroupElements * kInt8GroupElements;
      float largest = 0;
      for (size_t j = group; j < std::min(group + kInt8GroupElements, values.size()); ++j) {
        largest = std::max(largest, std::abs(values[j]));
      }
      return largest / 127 * 0.50001f + 127 * kSmallestNormal;
    }
    default:
      return 0;
  }
}

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

class EncodingTest : public ::testing::TestWithParam<EncodingSpec::Kind> {
 protected:
  const EncodingSpec::Kind kind_ = GetParam();
};

TEST_P(EncodingTest, RoundTripsWithinItsPrecision) {
  for (const int64_t count : kLengths) {
    const std::vector<float> values = Gradient(count, count);
    const std::vector<float> decoded = RoundTrip(kind_, values);
    for (int64_t i = 0; i < count; ++i) {
      if (kind_ == EncodingSpec::TOP_K && decoded[i] == 0) continue;
      ASSERT_LE(std::abs(decoded[i] - values[i]), Tolerance(kind_, values, i))
          << "element " << i << " of " << count << ": " << values[i];
    }
  }
}

TEST_P(EncodingTest, InstructionSetsGiveTheSameBits) {
  std::vector<float> values = Gradient(5000, 7);
  values[3] = kLargest;
  values[1700] = kDenormal;
  values[2100] = -kSmallestNormal;
  const std::string bytes = Encoded(kind_, values, InstructionSet::kBaseline);
  const std::vector<float> decoded = RoundTrip(kind_, values, InstructionSet::kBaseline);
  for (const InstructionSet set : InstructionSets()) {
    EXPECT_EQ(Encoded(kind_, values, set), bytes) << InstructionSetName(set);
    EXPECT_EQ(Bytes(RoundTrip(kind_, values, set)), Bytes(decoded)) << InstructionSetName(set);
  }
}

TEST_P(EncodingTest, ReadsAPayloadThatIsCutIntoSlicesAnywhere) {
  uint64_t random_state = 20240811;
  SCOPED_TRACE(testing::Message() << "seed " << random_state);
  for (const int64_t count : kLengths) {
    const std::vector<float> values = Gradient(count, count);
    const std::string bytes = Encoded(kind_, values);
    const std::vector<float> expected = RoundTrip(kind_, values);
    for (const size_t longest : {1, 3, 7, 1027, 1028, 9000}) {
      SCOPED_TRACE(testing::Message() << count << " elements, slices up to " << longest);
      const size_t skipped = UniformBelow(random_state, 10);
      const FramePayload payload(
          CutAnywhere(std::string(skipped, 'x') + bytes, longest, random_state), skipped, kind_);
      ASSERT_TRUE(payload.Check(count).ok()) << payload.Check(count);
      EXPECT_EQ(payload.FirstNonFinite(), -1);
      EXPECT_EQ(Bytes(Decoded(payload, count)), Bytes(expected));
      std::vector<float> collected;
      payload.ForEachRun(count, [&](int64_t first, absl::Span<const float> run) {
        EXPECT_EQ(first, static_cast<int64_t>(collected.size()));
        EXPECT_FALSE(run.empty());
        // Uses memcpy(), because the run may begin at any byte address.
        collected.resize(collected.size() + run.size());
        std::memcpy(&collected[first], run.data(), run.size() * sizeof(float));
      });
      EXPECT_EQ(Bytes(collected), Bytes(expected));
    }
  }
}

TEST_P(EncodingTest, DecodedValuesDoNotChangeInASecondRoundTrip) {
  const std::vector<float> once = RoundTrip(kind_, Gradient(2500, 3));
  const std::vector<float> twice = RoundTrip(kind_, once);
  for (size_t i = 0; i < once.size(); ++i) {
    ASSERT_FLOAT_EQ(twice[i], once[i]) << "element " << i;
  }
}

TEST_P(EncodingTest, KeepsZeros) {
  for (const int64_t count : {1, 1024, 1025}) {
    const std::vector<float> zeroes(count, 0.0f);
    EXPECT_EQ(RoundTrip(kind_, zeroes), zeroes);
    EXPECT_TRUE(ReadPayload(kind_, Encoded(kind_, zeroes)).Check(count).ok());
  }
}

TEST_P(EncodingTest, ExtremeNumbersStayFiniteAndKeepTheirSign) {
  for (const float size : {kDenormal, 1e-40f, kSmallestNormal, 1e-30f, 6e-8f, 6.1e-5f, 65504.0f,
                           65520.0f, 1e10f, 3.3e38f, kLargest}) {
    for (const float value : {size, -size}) {
      const std::vector<float> values = {value, value / 2, 0.0f, -value};
      const FramePayload payload = ReadPayload(kind_, Encoded(kind_, values));
      ASSERT_TRUE(payload.Check(4).ok()) << payload.Check(4) << " " << value;
      EXPECT_EQ(payload.FirstNonFinite(), -1) << value;
      const std::vector<float> decoded = Decoded(payload, 4);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(std::isfinite(decoded[i])) << value;
        EXPECT_LE(std::abs(decoded[i]), std::abs(values[i]) + Tolerance(kind_, values, i)) << value;
        EXPECT_GE(decoded[i] * std::copysign(1.0f, values[i]), 0.0f) << value;
      }
    }
  }
}

TEST_P(EncodingTest, DetectsNonfiniteElements) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("1"), -std::nanf("0x3fffff")}) {
    for (const int64_t count : {1, 3, 1030, 5000}) {
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        std::vector<float> values = Gradient(count, 5);
        values[at] = bad;
        const FramePayload payload = ReadPayload(kind_, Encoded(kind_, values));
        if (kind_ == EncodingSpec::INT8) {
          EXPECT_THAT(std::string(payload.Check(count).message()), HasSubstr("scale"));
        } else {
          ASSERT_TRUE(payload.Check(count).ok());
          EXPECT_EQ(payload.FirstNonFinite(), at) << bad << " in " << count;
        }
      }
    }
  }
}

TEST_P(EncodingTest, RefusesAPayloadOfAnotherLength) {
  for (const int64_t count : {1, 3, 1024, 1025}) {
    const std::string bytes = Encoded(kind_, Gradient(count, 1));
    const auto refused = [&](const std::string& wrong) {
      const absl::Status status = ReadPayload(kind_, wrong).Check(count);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << wrong.size() << " of " << count;
      EXPECT_THAT(std::string(status.message()),
                  testing::AllOf(HasSubstr(std::to_string(count) + " elements in " +
                                           EncodingSpec::Kind_Name(kind_)),
                                 HasSubstr("the payload has " + std::to_string(wrong.size()))));
    };
    refused(bytes.substr(1));
    refused(bytes + "x");
    refused("");
    if (kind_ != EncodingSpec::TOP_K) refused(bytes + bytes);
  }
}

TEST_P(EncodingTest, EncodesGroupsIndependently) {
  if (kind_ == EncodingSpec::TOP_K)
    GTEST_SKIP() << "it selects the largest elements of a whole block";
  const std::vector<float> values = Gradient(2500, 9);
  const auto part = [&](size_t begin, size_t end) {
    return Encoded(kind_, std::vector<float>(values.begin() + begin, values.begin() + end));
  };
  EXPECT_EQ(part(0, 1024) + part(1024, 2500), Encoded(kind_, values));
}

INSTANTIATE_TEST_SUITE_P(All, EncodingTest,
                         ::testing::Values(EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16,
                                           EncodingSpec::INT8, EncodingSpec::TOP_K),
                         EncodingName);

TEST(Bfloat16Test, RoundsToNearestAndTiesToEven) {
  // Neighbours of 1 are 2^-7 apart.
  EXPECT_EQ(RoundTrip(EncodingSpec::BFLOAT16, {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.01p-8f, -1.5f}),
            (std::vector<float>{1.0f, 1 + 0x1p-6f, 1 + 0x1p-7f, -1.5f}));
}

TEST(Bfloat16Test, RoundsToTheLargestNumberInsteadOfInfinity) {
  EXPECT_EQ(RoundTrip(EncodingSpec::BFLOAT16, {kLargest, -kLargest}),
            (std::vector<float>{0x1.fep127f, -0x1.fep127f}));
}

TEST(Int8Test, KeepsTheLargestElementOfAGroup) {
  std::vector<float> values = Gradient(3000, 21);
  values[100] = 30.0f;
  values[1500] = -700.0f;
  const std::vector<float> decoded = RoundTrip(EncodingSpec::INT8, values);
  EXPECT_FLOAT_EQ(decoded[100], 30.0f);
  EXPECT_FLOAT_EQ(decoded[1500], -700.0f);
}

TEST(Int8Test, RefusesAnInvalidScale) {
  const auto check = [](float scale) {
    std::string bytes = Encoded(EncodingSpec::INT8, Gradient(1500, 2));
    std::memcpy(&bytes[1028], &scale, sizeof(scale));
    return std::string(ReadPayload(EncodingSpec::INT8, bytes).Check(1500).message());
  };
  EXPECT_EQ(check(Int8Scale::kLargest), "");
  EXPECT_THAT(check(-1.0f), HasSubstr("the INT8 scale of elements 1024 and following is -1"));
  EXPECT_THAT(check(kInfinity), HasSubstr("is inf; expected 0 to 2.65846e+36"));
  EXPECT_THAT(check(std::nanf("1")), HasSubstr("is nan"));
  EXPECT_THAT(check(1e37f), HasSubstr("is 1e+37"));
}

TEST(TopKTest, SendsTheLargestElementsAndTheFirstOfEqualOnes) {
  EXPECT_EQ(RoundTrip(EncodingSpec::TOP_K, {1, -9, 3, 2, 1, 0, 0, 0, 0, 0}),
            (std::vector<float>{0, -9, 0, 0, 0, 0, 0, 0, 0, 0}));
  std::vector<float> values(40, 0.5f);
  values[30] = -7.0f;
  std::vector<float> expected(40, 0.0f);
  expected[0] = expected[1] = expected[2] = 0.5f;
  expected[30] = -7.0f;
  EXPECT_EQ(RoundTrip(EncodingSpec::TOP_K, values), expected);
}

TEST(TopKTest, SendsNoSmallerElementThanItSkips) {
  for (const int64_t count : {10, 1000, 30011}) {
    const std::vector<float> values = Gradient(count, count);
    const std::vector<float> decoded = RoundTrip(EncodingSpec::TOP_K, values);
    float smallest_sent = kLargest;
    float largest_left = 0;
    for (int64_t i = 0; i < count; ++i) {
      float& bound = decoded[i] != 0 ? smallest_sent : largest_left;
      bound = decoded[i] != 0 ? std::min(bound, std::abs(values[i]))
                              : std::max(bound, std::abs(values[i]));
    }
    EXPECT_GE(smallest_sent, largest_left);
    EXPECT_EQ(std::count_if(decoded.begin(), decoded.end(), [](float value) { return value != 0; }),
              (count + 9) / 10);
  }
}

TEST(TopKTest, RefusesInvalidIndices) {
  const auto check = [](std::vector<uint32_t> indices) {
    std::string bytes;
    for (const uint32_t index : indices) {
      bytes.append(reinterpret_cast<const char*>(&index), sizeof(index));
      bytes.append(4, '\0');
    }
    return std::string(ReadPayload(EncodingSpec::TOP_K, bytes).Check(10).message());
  };
  EXPECT_EQ(check({0, 1, 9}), "");
  EXPECT_EQ(check({3, 10}), "the TOP_K index of entry 1 is 10; expected 4 to 9");
  EXPECT_EQ(check({3, 3}), "the TOP_K index of entry 1 is 3; expected 4 to 9");
  EXPECT_EQ(check({3, 4, 2}), "the TOP_K index of entry 2 is 2; expected 5 to 9");
  EXPECT_EQ(check({4294967295}), "the TOP_K index of entry 0 is 4294967295; expected 0 to 9");
}

// Payloads that pass the checks must be finite and have the block's length, for any input.
TEST_P(EncodingTest, DamagedPayloadsAreRefusedOrFinite) {
  uint64_t random_state = 77;
  SCOPED_TRACE(testing::Message() << "seed " << random_state);
  for (int round = 0; round < 500; ++round) {
    const auto count = static_cast<int64_t>(1 + UniformBelow(random_state, 1100));
    std::string bytes = Encoded(kind_, Gradient(count, round));
    for (uint64_t damages = UniformBelow(random_state, 3); damages > 0; --damages) {
      bytes[UniformBelow(random_state, bytes.size())] = static_cast<char>(SplitMix64(random_state));
    }
    const FramePayload payload = ReadPayload(kind_, bytes);
    if (!payload.Check(count).ok() || payload.FirstNonFinite() >= 0) continue;
    for (const float value : Decoded(payload, count)) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace torchps
