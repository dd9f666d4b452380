#include "tests/worker/kernels/kernel_contract.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "torchps/common/hash.h"
#include "torchps/proto/job.pb.h"
#include "torchps/transport/encoding.h"
#include "torchps/transport/encoding_elements.h"
#include "torchps/transport/residual_encoding.h"
#include "torchps/transport/top_k.h"
#include "torchps/worker/gradient/gradient_scan.h"

namespace torchps {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

std::vector<int64_t> Sizes(const KernelRig& rig) {
  std::vector<int64_t> sizes = {1, 31, 33, 511, 512, 513, 1023, 1024, 1025, 4096, 4097, 9000};
  if (rig.is_fast()) sizes.insert(sizes.end(), {100'000, 512 * 512 + 1, 3 << 20});
  return sizes;
}

// Returns typical gradient numbers and a few of each other finite kind.
Floats FiniteNumbers(int64_t count, uint64_t seed) {
  constexpr float kOdd[] = {0.0f,       -0.0f, 0x1p-149f,        -0x1p-140f, 0x1.fp-127f, 0x1p-126f,
                            -0x1p-100f, 1.0f,  0x1.ffffffp+100f, 0x1.8p-8f,  0x1.008p+0f, 127.5f};
  Floats numbers(count);
  for (float& number : numbers) {
    const uint64_t bits = SplitMix64(seed);
    const double size = UnitDouble(SplitMix64(seed));
    number = static_cast<float>((UnitDouble(bits) - 0.5) * std::exp2(-20 * size));
    if (bits % 64 == 0) number = kOdd[SplitMix64(seed) % std::size(kOdd)];
  }
  return numbers;
}

// Returns numbers with many equal magnitudes.
Floats FewMagnitudes(int64_t count, uint64_t seed) {
  Floats numbers(count);
  for (float& number : numbers) {
    number = static_cast<float>(static_cast<int>(SplitMix64(seed) % 7) - 3);
  }
  return numbers;
}

// Device memory with guard areas before and after, to detect stray writes.
class Guarded {
 public:
  // Begins `offset` floats after an aligned address.
  Guarded(KernelRig* rig, size_t bytes, size_t offset = 0)
      : rig_(rig), begin_(kGuard + offset * sizeof(float)), size_(bytes) {
    content_.assign(begin_ + size_ + kGuard, 0xa5);
    device_ = rig_->Allocate(content_.size());
    rig_->ToDevice(content_.data(), device_, content_.size());
  }
  Guarded(KernelRig* rig, const Floats& numbers, size_t offset)
      : Guarded(rig, numbers.size() * sizeof(float), offset) {
    rig_->ToDevice(numbers.data(), device_ + begin_, size_);
  }

  uint8_t* bytes() const { return device_ + begin_; }
  float* floats() const { return reinterpret_cast<float*>(bytes()); }

  Bytes Get() {
    rig_->FromDevice(device_, content_.data(), content_.size());
    const auto is_guard = [](uint8_t byte) { return byte == 0xa5; };
    const auto begin = content_.begin() + static_cast<int64_t>(begin_);
    const auto end = begin + static_cast<int64_t>(size_);
    EXPECT_TRUE(std::all_of(content_.begin(), begin, is_guard))
        << "a kernel wrote before the memory";
    EXPECT_TRUE(std::all_of(end, content_.end(), is_guard)) << "a kernel wrote after the memory";
    return Bytes(begin, end);
  }
  Floats GetFloats() {
    const Bytes bytes = Get();
    Floats numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

 private:
  static constexpr size_t kGuard = 64;

  KernelRig* const rig_;
  const size_t begin_;
  const size_t size_;
  Bytes content_;
  uint8_t* device_;
};

// Returns the number of floats with different bits. Two NaNs at the same index count as equal.
int64_t Differences(const Floats& found, const Floats& expected) {
  if (found.size() != expected.size()) return -1;
  int64_t differences = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    if (GetBits(found[i]) != GetBits(expected[i])) ++differences;
  }
  return differences;
}

struct Scanned {
  GradientVerdict verdict;
  Floats elements;
};

Scanned ScanAndScale(KernelRig* rig, const Floats& elements, size_t offset, double clip_norm) {
  const auto count = static_cast<int64_t>(elements.size());
  Guarded device(rig, elements, offset);
  Guarded scratch(rig, GradientKernels::ScanScratchBytes(count));
  Guarded verdict(rig, sizeof(GradientVerdict));
  auto* const at = reinterpret_cast<GradientVerdict*>(verdict.bytes());
  GradientKernels& kernels = rig->kernels();
  EXPECT_TRUE(kernels.Scan(device.floats(), count, clip_norm, scratch.bytes(), at, nullptr).ok());
  EXPECT_TRUE(kernels.Scale(device.floats(), count, at, nullptr).ok());
  Scanned scanned;
  std::memcpy(&scanned.verdict, verdict.Get().data(), sizeof(scanned.verdict));
  scratch.Get();
  scanned.elements = device.GetFloats();
  return scanned;
}

TEST_P(KernelContract, NormAndClippingMatchTheHost) {
  for (const int64_t size : Sizes(*rig_)) {
    for (const size_t offset : {0, 1, 3}) {
      SCOPED_TRACE(::testing::Message() << size << " elements, " << offset << " from alignment");
      const Floats elements = FiniteNumbers(size, /*seed=*/size + offset);
      const GradientScan expected = ScanGradient(elements);
      ASSERT_TRUE(expected.finite);
      for (const double part : {0.0, 0.3, 2.0}) {
        const double clip_norm = expected.norm * part;
        Floats clipped = elements;
        const bool clips = ClipGradient(absl::MakeSpan(clipped), expected.norm, clip_norm);
        const Scanned found = ScanAndScale(rig_.get(), elements, offset, clip_norm);
        EXPECT_EQ(found.verdict.finite, 1);
        EXPECT_EQ(found.verdict.norm, expected.norm) << "to the last bit";
        EXPECT_EQ(found.verdict.factor != 1, clips);
        EXPECT_EQ(Differences(found.elements, clipped), 0) << "clipped to " << clip_norm;
      }
    }
  }
}

TEST_P(KernelContract, TheNormOfZerosIsZero) {
  const Scanned found = ScanAndScale(rig_.get(), Floats(1000, -0.0f), 0, /*clip_norm=*/1);
  EXPECT_EQ(found.verdict.finite, 1);
  EXPECT_EQ(found.verdict.norm, 0);
  EXPECT_EQ(Differences(found.elements, Floats(1000, -0.0f)), 0);
}

TEST_P(KernelContract, TheLargestNumbersAreFinite) {
  const Floats elements(5000, std::numeric_limits<float>::max());
  const Scanned found = ScanAndScale(rig_.get(), elements, 0, /*clip_norm=*/1);
  EXPECT_EQ(found.verdict.finite, 1);
  EXPECT_EQ(found.verdict.norm, ScanGradient(elements).norm);
}

TEST_P(KernelContract, FindsButDoesNotScaleNonFiniteNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<int64_t> places = {0, 31, 32, 511, 512, 700, 1023, 1024, 1199};
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t place : places) {
      Floats elements = FiniteNumbers(1200, /*seed=*/place);
      elements[place] = bad;
      const Scanned found = ScanAndScale(rig_.get(), elements, 1, /*clip_norm=*/1e-3);
      EXPECT_EQ(found.verdict.finite, 0) << bad << " at " << place;
      EXPECT_EQ(found.verdict.factor, 1) << bad << " at " << place;
      EXPECT_EQ(Differences(found.elements, elements), 0) << bad << " at " << place;
    }
  }
}

struct Kept {
  Bytes bytes;
  Floats residual;
};

Kept KeepOnHost(EncodingSpec::Kind kind, double fraction, const Floats& gradient, Floats residual) {
  Bytes bytes(EncodedBytes(kind, static_cast<int64_t>(gradient.size()), fraction));
  EncodeKeepingRest(kind, gradient, fraction, absl::MakeSpan(residual), bytes.data());
  return {std::move(bytes), std::move(residual)};
}

Kept KeepOnDevice(KernelRig* rig, EncodingSpec::Kind kind, double fraction, const Floats& gradient,
                  const Floats& residual, size_t offset, bool looks_first = false) {
  const auto count = static_cast<int64_t>(gradient.size());
  Guarded from(rig, gradient, offset);
  Guarded rest(rig, residual, (offset + 1) % 4);
  Guarded bytes(rig, EncodedBytes(kind, count, fraction), offset);
  Guarded verdict(rig, sizeof(GradientVerdict));
  Guarded scan_scratch(rig, GradientKernels::ScanScratchBytes(count));
  Guarded scratch(rig, GradientKernels::TopKScratchBytes(count));
  GradientKernels& kernels = rig->kernels();
  absl::Status status;
  GradientVerdict* found = nullptr;
  if (looks_first) {
    found = reinterpret_cast<GradientVerdict*>(verdict.bytes());
    status = kernels.Scan(from.floats(), count, 0, scan_scratch.bytes(), found, nullptr);
    EXPECT_TRUE(status.ok()) << status;
  }
  switch (kind) {
    case EncodingSpec::BFLOAT16:
      status =
          kernels.KeepBfloat16(from.floats(), rest.floats(), count, found, bytes.bytes(), nullptr);
      break;
    case EncodingSpec::INT8:
      status = kernels.KeepInt8(from.floats(), rest.floats(), count, found, bytes.bytes(), nullptr);
      break;
    default:
      status = kernels.KeepTopK(from.floats(), rest.floats(), count, TopKOf(count, fraction), found,
                                static_cast<void*>(scratch.bytes()), bytes.bytes(), nullptr);
  }
  EXPECT_TRUE(status.ok()) << status;
  Kept kept{bytes.Get(), rest.GetFloats()};
  scratch.Get();
  EXPECT_EQ(Differences(from.GetFloats(), gradient), 0) << "the kernel changed the gradient";
  return kept;
}

using Numbers = Floats (*)(int64_t count, uint64_t seed);

// Encodes two pushes on the host and on the device, and expects equal bits. The second push starts
// with the residual of the first.
void ExpectTheHostsBits(KernelRig* rig, EncodingSpec::Kind kind, double fraction, Numbers numbers) {
  for (const int64_t size : Sizes(*rig)) {
    const auto offset = static_cast<size_t>(size % 4);
    SCOPED_TRACE(::testing::Message() << size << " elements, fraction " << fraction);
    Floats residual(size, 0.0f);
    for (const uint64_t push : {1, 2}) {
      const Floats gradient = numbers(size, /*seed=*/push * 1000 + size);
      const Kept expected = KeepOnHost(kind, fraction, gradient, residual);
      const Kept found = KeepOnDevice(rig, kind, fraction, gradient, residual, offset);
      EXPECT_TRUE(found.bytes == expected.bytes) << "different bytes in push " << push;
      EXPECT_EQ(Differences(found.residual, expected.residual), 0) << "residual of push " << push;
      residual = expected.residual;
    }
  }
}

TEST_P(KernelContract, Bfloat16BytesAndResidualMatchTheHost) {
  ExpectTheHostsBits(rig_.get(), EncodingSpec::BFLOAT16, 1, &FiniteNumbers);
}

TEST_P(KernelContract, Int8BytesAndResidualMatchTheHost) {
  ExpectTheHostsBits(rig_.get(), EncodingSpec::INT8, 1, &FiniteNumbers);
  ExpectTheHostsBits(rig_.get(), EncodingSpec::INT8, 1, &FewMagnitudes);
}

TEST_P(KernelContract, TopKBytesAndResidualMatchTheHost) {
  for (const double fraction : {0.01, 0.1, 0.5}) {
    ExpectTheHostsBits(rig_.get(), EncodingSpec::TOP_K, fraction, &FiniteNumbers);
  }
}

TEST_P(KernelContract, TopKSendsTheFirstOfEqualMagnitudes) {
  for (const double fraction : {0.001, 0.3}) {
    ExpectTheHostsBits(rig_.get(), EncodingSpec::TOP_K, fraction, &FewMagnitudes);
  }
}

struct Encoding {
  EncodingSpec::Kind kind;
  double fraction;
};
constexpr Encoding kEncodings[] = {
    {EncodingSpec::BFLOAT16, 1}, {EncodingSpec::INT8, 1}, {EncodingSpec::TOP_K, 0.1}};

TEST_P(KernelContract, EncodesAFiniteBlockButNotANonFiniteOne) {
  for (const auto& [kind, fraction] : kEncodings) {
    SCOPED_TRACE(EncodingSpec::Kind_Name(kind));
    Floats gradient = FiniteNumbers(5000, /*seed=*/3);
    const Floats residual = FiniteNumbers(5000, /*seed=*/4);
    const Kept expected = KeepOnHost(kind, fraction, gradient, residual);
    const Kept kept = KeepOnDevice(rig_.get(), kind, fraction, gradient, residual, 1, true);
    EXPECT_TRUE(kept.bytes == expected.bytes);
    EXPECT_EQ(Differences(kept.residual, expected.residual), 0);

    gradient[4321] = HUGE_VALF;
    const Kept left = KeepOnDevice(rig_.get(), kind, fraction, gradient, residual, 1, true);
    EXPECT_TRUE(left.bytes == Bytes(left.bytes.size(), 0xa5))
        << "the kernel wrote bytes of the skipped block";
    EXPECT_EQ(Differences(left.residual, residual), 0);
  }
}

TEST_P(KernelContract, TakingBackAddsTheEncodedValuesToTheResidual) {
  for (const auto& [kind, fraction] : kEncodings) {
    for (const int64_t size : Sizes(*rig_)) {
      SCOPED_TRACE(EncodingSpec::Kind_Name(kind) + " of " + std::to_string(size));
      Kept kept =
          KeepOnHost(kind, fraction, FiniteNumbers(size, /*seed=*/size), Floats(size, 0.0f));
      Guarded bytes(rig_.get(), kept.bytes.size(), static_cast<size_t>(size % 4));
      rig_->ToDevice(kept.bytes.data(), bytes.bytes(), kept.bytes.size());
      Guarded rest(rig_.get(), kept.residual, 1);
      GradientKernels& kernels = rig_->kernels();
      const absl::Status status =
          kind == EncodingSpec::BFLOAT16
              ? kernels.TakeBackBfloat16(bytes.bytes(), size, rest.floats(), nullptr)
          : kind == EncodingSpec::INT8
              ? kernels.TakeBackInt8(bytes.bytes(), size, rest.floats(), nullptr)
              : kernels.TakeBackTopK(bytes.bytes(), TopKOf(size, fraction), rest.floats(), nullptr);
      ASSERT_TRUE(status.ok()) << status;
      Floats decoded(size);
      Decode(kind, kept.bytes, absl::MakeSpan(decoded));
      for (int64_t i = 0; i < size; ++i) kept.residual[i] += decoded[i];
      EXPECT_EQ(Differences(rest.GetFloats(), kept.residual), 0);
      EXPECT_TRUE(bytes.Get() == kept.bytes);
    }
  }
}

// The upper half of a float32 holds its sign, its exponent, and the bits that bfloat16 keeps. The
// lower halves are below a tie, at the tie, and above it.
TEST_P(KernelContract, Bfloat16OfEachUpperHalfMatchesTheHost) {
  constexpr uint32_t kLower[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
  const uint32_t step = rig_->is_fast() ? 1 : 61;
  for (const uint32_t lower : kLower) {
    Floats numbers;
    for (uint32_t upper = 0; upper <= 0xffff; upper += step) {
      numbers.push_back(GetFloat(upper << 16 | lower));
    }
    const Floats none(numbers.size(), -0.0f);
    const Kept expected = KeepOnHost(EncodingSpec::BFLOAT16, 1, numbers, none);
    const Kept found = KeepOnDevice(rig_.get(), EncodingSpec::BFLOAT16, 1, numbers, none, 0);
    EXPECT_EQ(Differences(found.residual, expected.residual), 0);
    Floats sent(numbers.size()), expected_sent(numbers.size());
    Decode(EncodingSpec::BFLOAT16, found.bytes, absl::MakeSpan(sent));
    Decode(EncodingSpec::BFLOAT16, expected.bytes, absl::MakeSpan(expected_sent));
    EXPECT_EQ(Differences(sent, expected_sent), 0) << "lower half " << lower;
  }
}

TEST_P(KernelContract, NonFiniteInt8GroupsMatchTheHost) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -HUGE_VALF, NAN}) {
    Floats gradient = FiniteNumbers(3000, /*seed=*/7);
    gradient[1500] = bad;
    const Floats none(gradient.size(), 0.0f);
    const Kept expected = KeepOnHost(EncodingSpec::INT8, 1, gradient, none);
    const Kept found = KeepOnDevice(rig_.get(), EncodingSpec::INT8, 1, gradient, none, 0);
    EXPECT_TRUE(found.bytes == expected.bytes) << bad;
    EXPECT_EQ(Differences(found.residual, expected.residual), 0) << bad;
  }
}

}  // namespace
}  // namespace torchps
