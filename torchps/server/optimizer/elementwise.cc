#include "torchps/server/optimizer/elementwise.h"

#include <cstdint>

namespace torchps {
namespace {

struct AddElement {
  float factor;
  [[gnu::always_inline]] void operator()(float term, float& sum) const { sum += factor * term; }
};

struct MoveElement {
  float share;
  [[gnu::always_inline]] void operator()(float target, float& value) const {
    value += share * (target - value);
  }
};

struct ScaleLoop {
  [[gnu::always_inline]] static void Run(float factor, float* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values[i] *= factor;
  }
};

int64_t Size(absl::Span<float> span) { return static_cast<int64_t>(span.size()); }

}  // namespace

void AddScaled(const float* terms, float factor, absl::Span<float> sums, InstructionSet set) {
  ForEachElement(set, AddElement{factor}, Size(sums), terms, sums.data());
}

void Scale(float factor, absl::Span<float> values, InstructionSet set) {
  const FlushDenormals flush;
  RunVectorised<ScaleLoop>(set, factor, values.data(), Size(values));
}

void MoveTowards(const float* targets, float share, absl::Span<float> values, InstructionSet set) {
  ForEachElement(set, MoveElement{share}, Size(values), targets, values.data());
}

}  // namespace torchps
