// Runs the element functions of the wire encodings on 2^24 numbers and prints a hash for each
// function. nvcc_test.sh compares the hashes of two compilers.

#include <cstdint>
#include <cstdio>
#include <initializer_list>

#include "torchps/transport/encoding_elements.h"
#include "torchps/worker/gradient/sum_order.h"

namespace torchps {
namespace {

constexpr uint32_t kNumbers = 1u << 24;

// Hashes a sequence of words (FNV-1a).
class Hash {
 public:
  void Add(uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001b3u; }
  void Print(const char* what) const {
    std::printf("%s %016llx\n", what, static_cast<unsigned long long>(hash_));
  }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// Covers both signs and each exponent with each value of the upper 15 fraction bits. The lower 8
// bits vary and include the neighbours of each Bfloat16 tie.
uint32_t Bits(uint32_t i) { return i << 8 | (i * 0x9e3779b1u >> 24); }

void Bfloat16Bits() {
  Hash sent, lost;
  for (uint32_t i = 0; i < kNumbers; ++i) {
    const uint32_t bits = Bits(i);
    sent.Add(Bfloat16::Of(bits));
    sent.Add(Bfloat16::In(Bfloat16::Of(bits)));
    if ((bits & kMagnitudeBits) >= kInfinityBits) continue;
    float rest = GetFloat(bits);
    sent.Add(Bfloat16::Take(rest));
    lost.Add(GetBits(rest));
  }
  sent.Print("bfloat16");
  lost.Print("bfloat16-residual");
}

// The numbers of a group are close in magnitude. For non-finite numbers, only the scale is hashed.
void Int8Bits() {
  Hash sent, lost;
  for (uint32_t begin = 0; begin < kNumbers; begin += kInt8GroupElements) {
    uint32_t largest = 0;
    for (uint32_t i = begin; i < begin + kInt8GroupElements; ++i) {
      const uint32_t magnitude = GetMagnitude(GetFloat(Bits(i)));
      largest = magnitude > largest ? magnitude : largest;
    }
    const Int8Scale group(largest);
    sent.Add(GetBits(group.scale()));
    if (largest >= kInfinityBits) continue;
    for (uint32_t i = begin; i < begin + kInt8GroupElements; ++i) {
      // Encodes the number itself and two smaller numbers, down to zero, with the group's scale.
      for (const float scale : {1.0f, 0x1p-3f, 0.71f * static_cast<float>(i % 1024) / 1024}) {
        float rest = GetFloat(Bits(i)) * scale;
        const auto byte = static_cast<int8_t>(group.Take(rest));
        sent.Add(static_cast<uint8_t>(byte));
        sent.Add(GetBits(Int8Scale::In(group.scale(), byte)));
        lost.Add(GetBits(rest));
      }
    }
  }
  sent.Print("int8");
  lost.Print("int8-residual");
}

void SquareBits() {
  Hash factors;
  double sum = 0;
  for (uint32_t i = 0; i < kNumbers; ++i) {
    if (GetMagnitude(GetFloat(Bits(i))) >= kInfinityBits) continue;
    sum = SumOrder::Term(sum) + SumOrder::Term(GetFloat(Bits(i)));
    factors.Add(GetBits(ClipFactor(sum, 1.5)));
  }
  factors.Print("clip-factor");
}

}  // namespace
}  // namespace torchps

int main() {
  torchps::Bfloat16Bits();
  torchps::Int8Bits();
  torchps::SquareBits();
  return 0;
}
