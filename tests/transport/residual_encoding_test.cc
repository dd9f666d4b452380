// Tests that a single pass over a block equals separate adding, encoding, decoding and subtracting.

#include "torchps/transport/residual_encoding.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "torchps/common/hash.h"
#include "torchps/transport/encoding.h"

namespace torchps {
namespace {

constexpr double kResidualFraction = 0.02;

std::vector<float> Random(int64_t count, uint64_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(UnitDouble(SplitMix64(seed))) - 0.5f,
                       static_cast<int>(SplitMix64(seed) % 24) - 20);
  }
  return values;
}

std::string RawBytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

class ResidualEncodingTest : public ::testing::TestWithParam<EncodingSpec::Kind> {};

TEST_P(ResidualEncodingTest, OnePassGivesTheBitsOfTheSeparateSteps) {
  for (const int64_t count : {1, 127, 128, 1024, 2500, 40000}) {
    const std::vector<float> gradient = Random(count, count);
    const std::vector<float> residual = Random(count, count + 1);
    std::vector<float> rest(count);
    for (int64_t i = 0; i < count; ++i) rest[i] = residual[i] + gradient[i];
    std::string bytes(EncodedBytes(GetParam(), count, kResidualFraction), '\0');
    auto* const data = reinterpret_cast<uint8_t*>(&bytes[0]);
    Encode(GetParam(), rest, kResidualFraction, data);
    std::vector<float> decoded(count);
    Decode(GetParam(), absl::MakeConstSpan(data, bytes.size()), absl::MakeSpan(decoded));
    for (int64_t i = 0; i < count; ++i) rest[i] -= decoded[i];

    for (const InstructionSet set : InstructionSets()) {
      SCOPED_TRACE(testing::Message() << count << " elements, " << InstructionSetName(set));
      std::vector<float> in_one_pass = residual;
      // The buffer has one more byte at each end. So the encoder writes at an odd address, and the
      // test detects a write outside of its bytes.
      std::string written(bytes.size() + 2, '\x5a');
      EncodeKeepingRest(GetParam(), gradient, kResidualFraction, absl::MakeSpan(in_one_pass),
                        reinterpret_cast<uint8_t*>(&written[1]), set);
      EXPECT_EQ(written, "\x5a" + bytes + "\x5a");
      EXPECT_EQ(RawBytes(in_one_pass), RawBytes(rest));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResidualEncodingTest,
                         ::testing::Values(EncodingSpec::BFLOAT16, EncodingSpec::INT8,
                                           EncodingSpec::TOP_K),
                         EncodingName);

}  // namespace
}  // namespace torchps
