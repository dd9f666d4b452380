// Tests that TOP_K sends the k largest elements, and the first among equal elements. The encoder
// guesses a threshold from sampled positions, so these tests vary the numbers at those positions.
// encoding_test.cc tests the format.

#include "torchps/transport/top_k.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr int64_t kElements = 20000;

std::string Encoded(const std::vector<float>& values, int64_t k, InstructionSet set) {
  std::string bytes(k * kTopKEntryBytes, '\0');
  EncodeTopK(values, k, reinterpret_cast<uint8_t*>(&bytes[0]), set);
  return bytes;
}

// Returns the expected payload, computed by sorting all elements.
std::string Expected(const std::vector<float>& values, int64_t k) {
  std::vector<uint32_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::stable_sort(indices.begin(), indices.end(), [&](uint32_t a, uint32_t b) {
    return std::abs(values[a]) > std::abs(values[b]);
  });
  indices.resize(k);
  std::sort(indices.begin(), indices.end());
  std::string bytes;
  for (const uint32_t index : indices) {
    bytes.append(reinterpret_cast<const char*>(&index), sizeof(index));
    bytes.append(reinterpret_cast<const char*>(&values[index]), sizeof(float));
  }
  return bytes;
}

void ExpectTheLargest(const std::vector<float>& values) {
  for (const int64_t k : {1, 20, 200, 2000, 9000, 19999, 20000}) {
    if (k > static_cast<int64_t>(values.size())) continue;
    const std::string expected = Expected(values, k);
    for (const InstructionSet set : InstructionSets()) {
      EXPECT_TRUE(Encoded(values, k, set) == expected) << k << ", " << InstructionSetName(set);
    }
  }
}

std::vector<float> Random(int64_t count) {
  uint64_t seed = 5;
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(UnitDouble(SplitMix64(seed))) - 0.5f;
  return values;
}

TEST(TopKTest, FindsTheLargestRandomNumbers) {
  ExpectTheLargest(Random(kElements));
  ExpectTheLargest(Random(1000));
}

TEST(TopKTest, SendsTheFirstOfEqualElements) {
  ExpectTheLargest(std::vector<float>(kElements, -0.25f));
  std::vector<float> values = Random(kElements);
  for (float& value : values) value = std::round(value * 20);
  ExpectTheLargest(values);
}

TEST(TopKTest, FindsTheLargestAmongZeros) {
  std::vector<float> values(kElements, 0.0f);
  values[19998] = -1e-30f;
  values[7] = 3;
  ExpectTheLargest(values);
}

TEST(TopKTest, FindsTheLargestAfterAWrongGuess) {
  // All elements at a certain stride are larger, or all are smaller, than the rest. An encoder that
  // samples at this stride sees only them, so it guesses a wrong threshold.
  for (const int64_t stride : {3, 5, 7, 9, 11, 13}) {
    for (const float factor : {1e6f, 1e-6f}) {
      for (int64_t offset = 0; offset < stride; ++offset) {
        std::vector<float> values = Random(kElements);
        for (int64_t i = offset; i < kElements; i += stride) values[i] *= factor;
        const int64_t k = kElements / 4;
        EXPECT_TRUE(Encoded(values, k, BestInstructionSet()) == Expected(values, k)) << stride;
      }
    }
  }
}

}  // namespace
}  // namespace torchps
