// Tests optimizers on each instruction set of this machine, and with denormal numbers.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/common/cpu/cpu_flags.h"
#include "torchps/server/optimizer/elementwise.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

constexpr float kSmallestNormal = std::numeric_limits<float>::min();

struct Case {
  std::string label;  // test name: letters and digits
  std::string spec;   // OptimizerSpec in text format, normalized
  int workers = 1;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.spec; }

std::vector<float> RandomFloats(int64_t n, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& f : floats) f = scale * normal(random);
  return floats;
}

// The values, followed by the arrays of the optimizer slots.
using State = std::vector<std::vector<float>>;

class InstructionSetsTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::unique_ptr<Optimizer> Make(InstructionSet set) {
    OptimizerSpec spec;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(GetParam().spec, &spec));
    return *MakeOptimizer(spec, set, GetParam().workers);
  }

  static State Initial(const Optimizer& optimizer, const std::vector<float>& values) {
    State state(1 + optimizer.slots(), values);
    optimizer.InitializeSlots(Slots(state), static_cast<int64_t>(values.size()));
    return state;
  }

  static void Apply(const Optimizer& optimizer, Version step, double decay,
                    const std::vector<float>& gradient, State& state) {
    ApplyParameters parameters;
    parameters.learning_rate = 0.05;
    parameters.weight_decay = decay;
    parameters.step = step;
    optimizer.Apply(parameters, state[0].data(), Slots(state), gradient.data(),
                    static_cast<int64_t>(gradient.size()));
  }

 private:
  static absl::Span<float* const> Slots(State& state) {
    static thread_local std::vector<float*> slots;
    slots.clear();
    for (size_t i = 1; i < state.size(); ++i) slots.push_back(state[i].data());
    return slots;
  }
};

std::string Bytes(const State& state) {
  std::string bytes;
  for (const std::vector<float>& array : state) {
    bytes.append(reinterpret_cast<const char*>(array.data()), array.size() * sizeof(float));
  }
  return bytes;
}

TEST_P(InstructionSetsTest, AllInstructionSetsComputeTheSameBits) {
  for (const int64_t n : {1, 3, 15, 16, 127, 128, 129, 1000}) {
    std::string expected;
    for (const InstructionSet set : InstructionSets()) {
      const std::unique_ptr<Optimizer> optimizer = Make(set);
      State state = Initial(*optimizer, RandomFloats(n, 1, 1.0f));
      for (Version step = 1; step <= 20; ++step) {
        // From step to step, the gradients grow from denormal numbers to large ones.
        Apply(*optimizer, step, 0.01, RandomFloats(n, 2 + step, std::pow(10.0f, 3 * step - 45)),
              state);
      }
      if (set == InstructionSet::kBaseline) expected = Bytes(state);
      EXPECT_EQ(Bytes(state), expected) << InstructionSetName(set) << ", " << n << " elements";
    }
  }
}

// Once the gradients are zero, the moments decay. The optimizer must round denormal moments to
// zero.
TEST_P(InstructionSetsTest, MomentsDecayToZeroWithoutDenormals) {
  for (const InstructionSet set : InstructionSets()) {
    const std::unique_ptr<Optimizer> optimizer = Make(set);
    State state = Initial(*optimizer, std::vector<float>(5, 0.0f));
    Apply(*optimizer, 1, 0, std::vector<float>(5, 1e-18f), state);
    const std::vector<float> nothing(5, 0.0f);
    for (Version step = 2; step <= 1200; ++step) {
      Apply(*optimizer, step, 0, nothing, state);
      for (const std::vector<float>& array : state) {
        for (const float element : array) {
          ASSERT_TRUE(element == 0 || std::abs(element) >= kSmallestNormal)
              << element << " at step " << step << ", " << InstructionSetName(set);
        }
      }
    }
  }
}

TEST_P(InstructionSetsTest, TreatsDenormalsAsZero) {
  for (const InstructionSet set : InstructionSets()) {
    const std::unique_ptr<Optimizer> optimizer = Make(set);
    State tiny = Initial(*optimizer, std::vector<float>(200, 1.0f));
    State zero = tiny;
    for (size_t slot = 1; slot < tiny.size(); ++slot) {
      std::fill(tiny[slot].begin(), tiny[slot].end(), kSmallestNormal / 2);
      std::fill(zero[slot].begin(), zero[slot].end(), 0.0f);
    }
    // DELAYED momentum reads a slot only once in `workers` steps.
    for (Version step = 2; step <= 1 + GetParam().workers; ++step) {
      Apply(*optimizer, step, 0, std::vector<float>(200, kSmallestNormal / 4), tiny);
      Apply(*optimizer, step, 0, std::vector<float>(200, 0.0f), zero);
    }
    EXPECT_EQ(Bytes(tiny), Bytes(zero)) << InstructionSetName(set);
  }
}

TEST_P(InstructionSetsTest, CodeAfterTheOptimizerStillHasDenormals) {
  const std::unique_ptr<Optimizer> optimizer = Make(BestInstructionSet());
  State state = Initial(*optimizer, std::vector<float>(5, 1.0f));
  Apply(*optimizer, 1, 0, std::vector<float>(5, 1.0f), state);
  volatile float smallest = kSmallestNormal;
  EXPECT_GT(smallest / 2, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(
    All, InstructionSetsTest,
    ::testing::Values(Case{"Sgd", "sgd {}"},
                      Case{"SgdMomentum", "sgd { momentum: 0.9 dampening: 0.1 }"},
                      Case{"SgdNesterov", "sgd { momentum: 0.9 nesterov: true }"},
                      Case{"SgdDelayed", "sgd { momentum: 0.9 momentum_at: DELAYED }"},
                      Case{"SgdDelayedOfThree", "sgd { momentum: 0.9 momentum_at: DELAYED }", 3},
                      Case{"Adam", "adam { beta1: 0.9 beta2: 0.95 epsilon: 1e-8 }"},
                      Case{"AdamW", "adamw { beta1: 0.9 beta2: 0.95 epsilon: 1e-8 }"},
                      Case{"Adagrad", "adagrad { epsilon: 1e-10 lr_decay: 0.001 }"},
                      Case{"RmsProp", "rmsprop { alpha: 0.9 epsilon: 1e-8 }"},
                      Case{"RmsPropMomentum", "rmsprop { alpha: 0.9 epsilon: 1e-8 momentum: 0.5 }"},
                      Case{"RmsPropCentered",
                           "rmsprop { alpha: 0.9 epsilon: 1e-8 centered: true }"},
                      Case{"RmsPropCenteredMomentum",
                           "rmsprop { alpha: 0.9 epsilon: 1e-8 momentum: 0.5 centered: true }"}),
    [](const ::testing::TestParamInfo<Case>& info) { return info.param.label; });

TEST(SpanMathTest, ComputesTheSameOnEveryInstructionSet) {
  const std::vector<float> terms = RandomFloats(1031, 1, 1.0f);
  for (const InstructionSet set : InstructionSets()) {
    std::vector<float> sums(1031, 1.0f);
    AddScaled(terms.data(), 3.0f, absl::MakeSpan(sums), set);
    for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], 1.0f + 3.0f * terms[i]);
    Scale(0.5f, absl::MakeSpan(sums), set);
    for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], (1.0f + 3.0f * terms[i]) * 0.5f);
    std::vector<float> values(1031, 2.0f);
    MoveTowards(terms.data(), 0.25f, absl::MakeSpan(values), set);
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(values[i], 2.0f + 0.25f * (terms[i] - 2.0f));
    }
  }
}

}  // namespace
}  // namespace torchps
