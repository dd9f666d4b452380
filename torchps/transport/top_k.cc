#include "torchps/transport/top_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "torchps/common/cpu/streaming_copy.h"
#include "torchps/transport/encoding_elements.h"

namespace torchps {
namespace {

// Sets flags[i] to 1 if magnitude i is at least `threshold`, otherwise to 0.
struct FlagsAtLeast {
  [[gnu::always_inline]] static void Run(const float* __restrict elements,
                                         uint8_t* __restrict flags, int64_t n, uint32_t threshold) {
    const UnalignedUint32* const bits = reinterpret_cast<const UnalignedUint32*>(elements);
    // Signed comparison instructions exist on all machines, and magnitudes are never negative.
    const auto limit = static_cast<int32_t>(threshold);
    for (int64_t i = 0; i < n; ++i) {
      flags[i] = static_cast<int32_t>(bits[i] & kMagnitudeBits) >= limit ? 1 : 0;
    }
  }
};

// Calls visit(index), in ascending order, for elements with a magnitude of at least `threshold`.
template <typename Visit>
void ForEachAtLeast(uint32_t threshold, absl::Span<const float> elements, InstructionSet set,
                    Visit visit) {
  constexpr size_t kScan = 512;
  constexpr size_t kWord = sizeof(uint64_t);
  uint8_t flags[kScan];
  for (size_t begin = 0; begin < elements.size(); begin += kScan) {
    const size_t count = std::min(kScan, elements.size() - begin);
    RunVectorised<FlagsAtLeast>(set, elements.data() + begin, flags, static_cast<int64_t>(count),
                                threshold);
    std::fill(flags + count, flags + (count + kWord - 1) / kWord * kWord, uint8_t{0});
    for (size_t at = 0; at < count; at += kWord) {
      uint64_t word;
      std::memcpy(&word, flags + at, kWord);
      // Each flag is the lowest bit of its byte, and the first byte is the lowest byte of the word.
      for (; word != 0; word &= word - 1) {
        visit(begin + at + static_cast<size_t>(__builtin_ctzll(word)) / 8);
      }
    }
  }
}

// Describes the k largest magnitudes: all elements above `magnitude`, and `at` elements equal to
// it.
struct Cut {
  uint32_t magnitude = 0;
  int64_t at = 0;
};

// Finds the k-th largest magnitude digit by digit, from the highest digit. Each pass counts the
// values of the next digit among the elements that match the digits found so far; the counts
// determine the next digit. Needs memory only for the counts. REQUIRES: 1 <= k <= elements.size().
Cut FindCut(absl::Span<const float> elements, int64_t k, InstructionSet set) {
  constexpr int kDigitBits[] = {11, 10, 10};
  std::array<int64_t, 1 << 11> counts;
  Cut cut;
  cut.at = k;
  int low_bits = 31;
  for (const int digit_bits : kDigitBits) {
    const int known_from = low_bits;
    low_bits -= digit_bits;
    counts.fill(0);
    ForEachAtLeast(cut.magnitude, elements, set, [&](size_t i) {
      const uint32_t magnitude = GetMagnitude(elements[i]);
      if (magnitude >> known_from != cut.magnitude >> known_from) return;
      ++counts[magnitude >> low_bits & ((1u << digit_bits) - 1)];
    });
    int64_t digit = (int64_t{1} << digit_bits) - 1;
    while (counts[digit] < cut.at) cut.at -= counts[digit--];
    cut.magnitude |= static_cast<uint32_t>(digit) << low_bits;
  }
  return cut;
}

// Estimates, from evenly spaced samples, a magnitude that slightly more than k elements reach.
// Returns 0 if an estimate would not save time.
uint32_t GuessThreshold(absl::Span<const float> elements, int64_t k) {
  constexpr size_t kSamples = 2048;
  if (elements.size() < 4 * kSamples) return 0;
  // An odd stride makes the samples rotate through the columns of a matrix.
  const size_t stride = elements.size() / kSamples | 1;
  std::array<uint32_t, kSamples> samples;
  size_t count = 0;
  for (size_t i = stride / 2; i < elements.size() && count < kSamples; i += stride) {
    samples[count++] = GetMagnitude(elements[i]);
  }
  const double expected =
      static_cast<double>(count) * static_cast<double>(k) / static_cast<double>(elements.size());
  // Adds four standard deviations as a safety margin.
  const double rank = expected + 4 * std::sqrt(expected) + 1;
  // If half of the elements would be read twice, a single exact pass is as fast.
  if (rank > static_cast<double>(count) / 2) return 0;
  const auto guess = samples.begin() + static_cast<int64_t>(rank);
  std::nth_element(samples.begin(), guess, samples.begin() + count, std::greater<>());
  return *guess;
}

uint8_t* Append(size_t index, float value, uint8_t* to) {
  const auto index32 = static_cast<uint32_t>(index);
  std::memcpy(to, &index32, sizeof(index32));
  std::memcpy(to + sizeof(index32), &value, sizeof(value));
  return to + kTopKEntryBytes;
}

// Collects the elements that reach a threshold. If there are more than `room`, it collects the
// first `room` and sets `overflown`.
struct Candidates {
  Candidates(uint32_t threshold, int64_t room, absl::Span<const float> elements,
             InstructionSet set) {
    indices.reserve(room);
    values.reserve(room);
    size_t found = 0;
    ForEachAtLeast(threshold, elements, set, [&](size_t i) {
      if (found++ == static_cast<size_t>(room)) overflown = true;
      if (overflown) return;
      indices.push_back(static_cast<uint32_t>(i));
      values.push_back(elements[i]);
    });
  }

  std::vector<uint32_t> indices;
  std::vector<float> values;
  bool overflown = false;
};

}  // namespace

TopKEntry ReadTopKEntry(const uint8_t* bytes) {
  TopKEntry entry;
  std::memcpy(&entry.index, bytes, sizeof(entry.index));
  std::memcpy(&entry.value, bytes + sizeof(entry.index), sizeof(entry.value));
  return entry;
}

int64_t TopKOf(int64_t elements, double fraction) {
  const auto k = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(elements)));
  return std::min(std::max<int64_t>(k, 1), elements);
}

void EncodeTopK(absl::Span<const float> elements, int64_t k, uint8_t* to, InstructionSet set) {
  // Usually one pass suffices. It collects the few elements that reach the guess; if there are at
  // least k of them, they include the k largest. The output does not depend on the guess.
  if (const uint32_t guess = GuessThreshold(elements, k); guess > 0) {
    const int64_t room = std::min<int64_t>(elements.size() / 2, 8 * k + 1024);
    const Candidates candidates(guess, room, elements, set);
    if (!candidates.overflown && static_cast<int64_t>(candidates.values.size()) >= k) {
      const Cut cut = FindCut(candidates.values, k, set);
      int64_t at_cut = cut.at;
      for (size_t i = 0; i < candidates.values.size(); ++i) {
        const uint32_t magnitude = GetMagnitude(candidates.values[i]);
        if (magnitude < cut.magnitude) continue;
        if (magnitude == cut.magnitude && at_cut-- <= 0) continue;
        to = Append(candidates.indices[i], candidates.values[i], to);
      }
      return;
    }
  }
  const Cut cut = FindCut(elements, k, set);
  int64_t at_cut = cut.at;
  ForEachAtLeast(cut.magnitude, elements, set, [&](size_t i) {
    if (GetMagnitude(elements[i]) == cut.magnitude && at_cut-- <= 0) return;
    to = Append(i, elements[i], to);
  });
}

void DecodeTopK(absl::Span<const uint8_t> bytes, absl::Span<float> elements) {
  std::fill(elements.begin(), elements.end(), 0.0f);
  for (size_t at = 0; at < bytes.size(); at += kTopKEntryBytes) {
    const TopKEntry entry = ReadTopKEntry(bytes.data() + at);
    elements[entry.index] = entry.value;
  }
}

}  // namespace torchps
