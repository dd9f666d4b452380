// Tests the contract in torchps/server/optimizer/optimizer.h with each optimizer.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct Case {
  std::string label;  // test name: letters and digits
  std::string spec;   // OptimizerSpec in text format, normalized
  int workers = 1;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.spec; }

constexpr uint32_t kSeed = 20240607;

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (float& f : floats) f = normal(random);
  return floats;
}

// Values and optimizer slots of one block, as in the parameter store.
class Block {
 public:
  Block(const Optimizer& optimizer, std::vector<float> values) : values_(std::move(values)) {
    slots_.resize(optimizer.slots());
    for (std::vector<float>& slot : slots_) slot.resize(values_.size());
    optimizer.InitializeSlots(SlotsFrom(0), static_cast<int64_t>(values_.size()));
  }

  void Apply(const Optimizer& optimizer, const ApplyParameters& parameters, const float* gradient,
             int64_t begin, int64_t end) {
    optimizer.Apply(parameters, values_.data() + begin, SlotsFrom(begin), gradient, end - begin);
  }

  void Apply(const Optimizer& optimizer, const ApplyParameters& parameters,
             const std::vector<float>& gradient) {
    Apply(optimizer, parameters, gradient.data(), 0, static_cast<int64_t>(values_.size()));
  }

  const std::vector<float>& values() const { return values_; }
  const std::vector<std::vector<float>>& slots() const { return slots_; }

 private:
  absl::Span<float* const> SlotsFrom(int64_t begin) {
    pointers_.clear();
    for (std::vector<float>& slot : slots_) pointers_.push_back(slot.data() + begin);
    return pointers_;
  }

  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
  std::vector<float*> pointers_;  // the last result of SlotsFrom
};

class OptimizerContractTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    OptimizerSpec spec;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(GetParam().spec, &spec));
    absl::StatusOr<std::unique_ptr<Optimizer>> made =
        MakeOptimizer(spec, BestInstructionSet(), GetParam().workers);
    ASSERT_TRUE(made.ok()) << made.status();
    optimizer_ = *std::move(made);
  }

  static ApplyParameters At(Version step) {
    ApplyParameters parameters;
    parameters.learning_rate = 0.05;
    parameters.weight_decay = 0.01;
    parameters.step = step;
    return parameters;
  }

  std::unique_ptr<Optimizer> optimizer_;
};

TEST_P(OptimizerContractTest, SlotNamesAreUnique) {
  std::set<std::string> names;
  for (int i = 0; i < optimizer_->slots(); ++i) {
    EXPECT_FALSE(optimizer_->slot_name(i).empty());
    names.insert(std::string(optimizer_->slot_name(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(optimizer_->slots()));
}

TEST_P(OptimizerContractTest, PiecesOfABlockGiveTheSameBits) {
  constexpr int64_t kLength = 1031;
  const std::vector<int64_t> cuts = {0, 1, 2, 5, 5, 64, 67, 512, 1030, kLength};
  Block whole(*optimizer_, RandomFloats(kLength, kSeed));
  Block pieces = whole;
  for (Version step = 1; step <= 10; ++step) {
    const std::vector<float> gradient = RandomFloats(kLength, kSeed + step);
    whole.Apply(*optimizer_, At(step), gradient);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      pieces.Apply(*optimizer_, At(step), gradient.data() + cuts[i], cuts[i], cuts[i + 1]);
    }
  }
  EXPECT_THAT(pieces.values(), ElementsAreArray(whole.values()));
  EXPECT_THAT(pieces.slots(), ElementsAreArray(whole.slots()));
}

TEST_P(OptimizerContractTest, ElementsAreIndependent) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 1025}) {
    const std::vector<float> start = RandomFloats(n, kSeed);
    Block together(*optimizer_, start);
    Block last_alone(*optimizer_, {start.back()});
    for (Version step = 1; step <= 3; ++step) {
      const std::vector<float> gradient = RandomFloats(n, kSeed + step);
      together.Apply(*optimizer_, At(step), gradient);
      last_alone.Apply(*optimizer_, At(step), {gradient.back()});
    }
    EXPECT_EQ(together.values().back(), last_alone.values()[0]) << n << " elements";
  }
}

TEST_P(OptimizerContractTest, IgnoresAnEmptyRange) {
  Block block(*optimizer_, {1.0f, 2.0f});
  const Block before = block;
  block.Apply(*optimizer_, At(1), nullptr, 1, 1);
  EXPECT_THAT(block.values(), ElementsAreArray(before.values()));
  EXPECT_THAT(block.slots(), ElementsAreArray(before.slots()));
}

TEST_P(OptimizerContractTest, ChangesOnlyTheRange) {
  constexpr int64_t kLength = 64;
  for (int64_t begin = 0; begin < 9; ++begin) {
    for (int64_t end = kLength - 9; end < kLength; ++end) {
      Block block(*optimizer_, RandomFloats(kLength, kSeed));
      const Block before = block;
      const std::vector<float> gradient = RandomFloats(kLength, kSeed + 1);
      block.Apply(*optimizer_, At(1), gradient.data() + begin, begin, end);
      for (int64_t i = 0; i < kLength; ++i) {
        const bool inside = begin <= i && i < end;
        ASSERT_EQ(block.values()[i] != before.values()[i], inside) << begin << " " << end;
        // Each step changes at least one of the optimizer slots.
        bool remembered = optimizer_->slots() == 0;
        for (int slot = 0; slot < optimizer_->slots(); ++slot) {
          const bool changed = block.slots()[slot][i] != before.slots()[slot][i];
          ASSERT_TRUE(inside || !changed) << begin << " " << end;
          remembered |= changed;
        }
        ASSERT_TRUE(remembered || !inside) << begin << " " << end;
      }
    }
  }
}

TEST_P(OptimizerContractTest, ReadsGradientsAtUnalignedAddresses) {
  constexpr int64_t kLength = 131;
  const std::vector<float> start = RandomFloats(kLength, kSeed);
  const std::vector<float> gradient = RandomFloats(kLength, kSeed + 1);
  Block aligned(*optimizer_, start);
  aligned.Apply(*optimizer_, At(1), gradient);
  for (size_t shift = 0; shift < 17; ++shift) {
    std::vector<char> frame(shift + kLength * sizeof(float));
    std::memcpy(frame.data() + shift, gradient.data(), kLength * sizeof(float));
    Block shifted(*optimizer_, start);
    shifted.Apply(*optimizer_, At(1), reinterpret_cast<const float*>(frame.data() + shift), 0,
                  kLength);
    EXPECT_THAT(shifted.values(), ElementsAreArray(aligned.values())) << shift << " bytes in";
    EXPECT_THAT(shifted.slots(), ElementsAreArray(aligned.slots())) << shift << " bytes in";
  }
}

TEST_P(OptimizerContractTest, UpdatesOfOneBlockDoNotAffectAnother) {
  const std::vector<float> start = RandomFloats(33, kSeed);
  Block alone(*optimizer_, start);
  Block mixed(*optimizer_, start);
  Block other(*optimizer_, RandomFloats(57, kSeed + 100));
  for (Version step = 1; step <= 5; ++step) {
    alone.Apply(*optimizer_, At(step), RandomFloats(33, kSeed + step));
  }
  for (Version step = 1; step <= 5; ++step) {
    other.Apply(*optimizer_, At(2 * step), RandomFloats(57, kSeed + 200 + step));
    mixed.Apply(*optimizer_, At(step), RandomFloats(33, kSeed + step));
  }
  EXPECT_THAT(mixed.values(), ElementsAreArray(alone.values()));
  EXPECT_THAT(mixed.slots(), ElementsAreArray(alone.slots()));
}

TEST_P(OptimizerContractTest, AZeroGradientWithoutDecayChangesNothing) {
  const std::vector<float> start = RandomFloats(21, kSeed);
  Block block(*optimizer_, start);
  for (Version step = 1; step <= 3; ++step) {
    ApplyParameters parameters = At(step);
    parameters.weight_decay = 0;
    block.Apply(*optimizer_, parameters, std::vector<float>(21, 0.0f));
  }
  EXPECT_THAT(block.values(), ElementsAreArray(start));
}

TEST_P(OptimizerContractTest, FiniteGradientsKeepValuesFinite) {
  // Constant gradients are the hard case: the centered variance is then zero, up to rounding.
  for (const float size : {1e-30f, 1e-10f, 0.1f, 1.0f, 3.0f, 1e10f, 1e18f}) {
    Block block(*optimizer_, std::vector<float>(5, 1.0f));
    for (Version step = 1; step <= 2000; ++step) {
      ApplyParameters parameters = At(step);
      parameters.weight_decay = 0;
      block.Apply(*optimizer_, parameters, std::vector<float>(5, size));
      for (const float value : block.values()) {
        ASSERT_TRUE(std::isfinite(value)) << "gradient " << size << ", step " << step;
      }
    }
  }
}

TEST_P(OptimizerContractTest, MinimizesAParabola) {
  Block block(*optimizer_, {2.0f, -1.0f, 0.5f});
  const std::vector<float> start = block.values();
  for (Version step = 1; step <= 200; ++step) {
    block.Apply(*optimizer_, At(step),
                block.values());  // the gradient of x^2 / 2 is x
  }
  for (size_t i = 0; i < start.size(); ++i) {
    EXPECT_LT(std::abs(block.values()[i]), 0.7f * std::abs(start[i])) << "element " << i;
  }
}

TEST_P(OptimizerContractTest, ALearningRateOfZeroKeepsTheValues) {
  const std::vector<float> start = RandomFloats(9, kSeed);
  Block block(*optimizer_, start);
  ApplyParameters parameters = At(1);
  parameters.learning_rate = 0;
  block.Apply(*optimizer_, parameters, RandomFloats(9, kSeed + 1));
  EXPECT_THAT(block.values(), ElementsAreArray(start));
}

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerContractTest,
    ::testing::Values(
        Case{"Sgd", "sgd {}"}, Case{"SgdMomentum", "sgd { momentum: 0.9 dampening: 0.1 }"},
        Case{"SgdNesterov", "sgd { momentum: 0.9 nesterov: true }"},
        Case{"SgdDelayed", "sgd { momentum: 0.9 momentum_at: DELAYED }", 3},
        Case{"Adam", "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }"},
        Case{"AdamW", "adamw { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 }"},
        Case{"Adagrad", "adagrad { epsilon: 1e-10 lr_decay: 0.001 }"},
        Case{"AdagradWarm", "adagrad { epsilon: 1e-10 initial_accumulator: 0.5 }"},
        Case{"RmsProp", "rmsprop { alpha: 0.99 epsilon: 1e-8 }"},
        Case{"RmsPropCentered", "rmsprop { alpha: 0.99 epsilon: 1e-8 centered: true }"},
        Case{"RmsPropMomentum", "rmsprop { alpha: 0.99 epsilon: 1e-8 momentum: 0.5 }"},
        Case{"RmsPropCenteredMomentum",
             "rmsprop { alpha: 0.99 epsilon: 1e-8 "
             "momentum: 0.5 centered: true }"}),
    [](const ::testing::TestParamInfo<Case>& info) { return info.param.label; });

TEST(MakeOptimizerTest, RejectsASpecWithoutAKind) {
  const absl::Status status = MakeOptimizer(OptimizerSpec()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sgd, adam, adamw"));
}

TEST(MakeOptimizerTest, ErrorNamesTheMissingField) {
  OptimizerSpec spec;
  spec.mutable_adamw()->set_beta1(0.9);
  const absl::Status status = MakeOptimizer(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("optimizer.adamw.beta2"));
}

}  // namespace
}  // namespace torchps
