// Compares a few steps of each optimizer with results computed by hand from the formulas in the
// headers. Large epsilons and round numbers make each term visible in the result. In the comments,
// b is the momentum of SGD and RMSprop, and m is the momentum of DELAYED. Adam has the moments m
// and v, Adagrad has the sum of squares a, and RMSprop has the mean square v and the mean c.

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {
namespace {

// Applies `gradients` one after the other to one element that starts at `value`. Returns the value
// after each step.
std::vector<float> ValuesAfterEach(const std::string& text, double learning_rate,
                                   double weight_decay, float value,
                                   std::initializer_list<float> gradients, int workers = 1) {
  OptimizerSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  const absl::StatusOr<std::unique_ptr<Optimizer>> optimizer =
      MakeOptimizer(spec, BestInstructionSet(), workers);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  std::vector<float> state((*optimizer)->slots());
  std::vector<float*> slots;
  for (float& slot : state) slots.push_back(&slot);
  (*optimizer)->InitializeSlots(slots, 1);
  std::vector<float> values;
  ApplyParameters parameters;
  parameters.learning_rate = learning_rate;
  parameters.weight_decay = weight_decay;
  for (const float gradient : gradients) {
    (*optimizer)->Apply(parameters, &value, slots, &gradient, 1);
    values.push_back(value);
    ++parameters.step;
  }
  return values;
}

void ExpectValues(const std::vector<float>& values, std::initializer_list<float> expected) {
  ASSERT_EQ(values.size(), expected.size());
  size_t i = 0;
  for (const float e : expected) {
    EXPECT_FLOAT_EQ(values[i], e) << "after step " << i + 1;
    ++i;
  }
}

TEST(SgdTest, SubtractsTheRateTimesTheGradient) {
  ExpectValues(ValuesAfterEach("sgd {}", 0.1, 0, 1.0f, {0.5f, -2.0f}), {0.95f, 1.15f});
}

TEST(SgdTest, AddsTheDecayToTheGradient) {
  // 1 + 0.1 * 2 = 1.2
  ExpectValues(ValuesAfterEach("sgd {}", 0.5, 0.1, 2.0f, {1.0f}), {1.4f});
}

TEST(SgdTest, DampensGradientsAfterTheFirst) {
  // b = 1; 0.9 + 0.5 = 1.4; 1.26 + 0.5 = 1.76
  ExpectValues(
      ValuesAfterEach("sgd { momentum: 0.9 dampening: 0.5 }", 0.1, 0, 0.0f, {1.0f, 1.0f, 1.0f}),
      {-0.1f, -0.24f, -0.416f});
}

TEST(SgdTest, NesterovAddsTheMomentumToTheGradientOnceMore) {
  // b = 1, 1 + 0.9 * 1 = 1.9; b = 1.9, 1 + 0.9 * 1.9 = 2.71
  ExpectValues(ValuesAfterEach("sgd { momentum: 0.9 nesterov: true }", 0.1, 0, 0.0f, {1.0f, 1.0f}),
               {-0.19f, -0.461f});
}

TEST(DelayedNesterovTest, AfterOneGradientOfEachWorkerTheirSumMovesTheMomentum) {
  // The value moves by 0.1 * 1 and 0.1 * 2. Then m = 3 moves it by 0.1 * 0.5 * 3. Two gradients
  // later, m = 0.5 * 3 + 6 = 7.5.
  ExpectValues(ValuesAfterEach("sgd { momentum: 0.5 momentum_at: DELAYED }", 0.1, 0, 0.0f,
                               {1.0f, 2.0f, 4.0f, 2.0f}, /*workers=*/2),
               {-0.1f, -0.3f - 0.15f, -0.85f, -1.05f - 0.375f});
}

TEST(DelayedNesterovTest, AddsTheDecayToTheGradient) {
  // The gradients with decay are 1 + 0.5 * 2 = 2 and 1 + 0.5 * 1.8 = 1.9. Then m = 3.9 moves the
  // value by 0.1 * 0.5 * 3.9.
  ExpectValues(ValuesAfterEach("sgd { momentum: 0.5 momentum_at: DELAYED }", 0.1, 0.5, 2.0f,
                               {1.0f, 1.0f}, /*workers=*/2),
               {1.8f, 1.61f - 0.195f});
}

TEST(DelayedNesterovTest, OneWorkerMatchesNesterovMomentum) {
  const std::initializer_list<float> gradients = {1.3f, -0.7f, 0.2f, 3.1f};
  EXPECT_EQ(
      ValuesAfterEach("sgd { momentum: 0.9 momentum_at: DELAYED }", 0.1, 0.01, 2.0f, gradients),
      ValuesAfterEach("sgd { momentum: 0.9 nesterov: true }", 0.1, 0.01, 2.0f, gradients));
}

TEST(AdamTest, CorrectsTheBiasBeforeAddingEpsilon) {
  // m = 1.5, v = 4.5, unbiased 3 and 9: 3 / (3 + 1) = 0.75.
  // m = 1.25, v = 2.75, unbiased 5/3 and 11/3: 1.6666667 / (1.9148542 + 1) =
  // 0.5717839.
  ExpectValues(
      ValuesAfterEach("adam { beta1: 0.5 beta2: 0.5 epsilon: 1 }", 0.1, 0, 1.0f, {3.0f, 1.0f}),
      {0.925f, 0.86782161f});
}

TEST(AdamTest, AddsTheDecayToTheGradientFirst) {
  // 3 + 0.5 * 2 = 4: 4 / (4 + 1) = 0.8.
  ExpectValues(
      ValuesAfterEach("adam { beta1: 0.9 beta2: 0.999 epsilon: 1 }", 0.1, 0.5, 2.0f, {3.0f}),
      {1.92f});
}

TEST(AdamWTest, DecaysTheValueNotTheGradient) {
  // 2 * (1 - 0.1 * 0.5) = 1.9, then 3 / (3 + 1) = 0.75.
  ExpectValues(
      ValuesAfterEach("adamw { beta1: 0.9 beta2: 0.999 epsilon: 1 }", 0.1, 0.5, 2.0f, {3.0f}),
      {1.825f});
}

TEST(AdagradTest, DividesByTheRootOfAccumulatedSquares) {
  // After the first gradient a = 9: 3 / 4, with rate 0.1. After the second a = 25: 4 / 6, with rate
  // 0.1 / 2.
  ExpectValues(ValuesAfterEach("adagrad { epsilon: 1 lr_decay: 1 }", 0.1, 0, 1.0f, {3.0f, 4.0f}),
               {0.925f, 0.89166667f});
}

TEST(AdagradTest, BeginsWithTheInitialAccumulator) {
  // a = 16 + 9: 3 / (5 + 1).
  ExpectValues(
      ValuesAfterEach("adagrad { epsilon: 1 initial_accumulator: 16 }", 0.1, 0, 1.0f, {3.0f}),
      {0.95f});
}

TEST(AdagradTest, AddsTheDecayToTheGradient) {
  // 2 + 0.5 * 2 = 3: 3 / (3 + 1).
  ExpectValues(ValuesAfterEach("adagrad { epsilon: 1 }", 0.1, 0.5, 2.0f, {2.0f}), {1.925f});
}

TEST(RmsPropTest, DividesByTheRunningRootMeanSquare) {
  // v = 1: 2 / 2; v = 1.75: 2 / 2.3228757 = 0.8610018.
  ExpectValues(ValuesAfterEach("rmsprop { alpha: 0.75 epsilon: 1 }", 0.1, 0, 1.0f, {2.0f, 2.0f}),
               {0.9f, 0.81389982f});
}

TEST(RmsPropTest, CenteredDividesByTheRunningDeviation) {
  // v = 2, c = 1: 2 / (1 + 1).
  ExpectValues(
      ValuesAfterEach("rmsprop { alpha: 0.5 epsilon: 1 centered: true }", 0.1, 0, 1.0f, {2.0f}),
      {0.9f});
}

TEST(RmsPropTest, MomentumSumsUpdatesBeforeTheRate) {
  // b = 1, then b = 0.5 * 1 + 0.8610018.
  ExpectValues(ValuesAfterEach("rmsprop { alpha: 0.75 epsilon: 1 momentum: 0.5 }", 0.1, 0, 1.0f,
                               {2.0f, 2.0f}),
               {0.9f, 0.76389982f});
}

TEST(RmsPropTest, CenteredMomentumUsesThreeSlots) {
  // v = 2, c = 1, b = 1; v = 3, c = 1.5, 2 / (0.8660254 + 1) = 1.0717968, b
  // = 1.5717968.
  ExpectValues(ValuesAfterEach("rmsprop { alpha: 0.5 epsilon: 1 momentum: 0.5 centered: true }",
                               0.1, 0, 1.0f, {2.0f, 2.0f}),
               {0.9f, 0.74282032f});
}

}  // namespace
}  // namespace torchps
