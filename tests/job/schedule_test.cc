#include "torchps/job/schedule.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Schedule> Parse(const std::string& text) {
  ScheduleSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return Schedule::Create(spec);
}

Schedule Make(const std::string& text) {
  absl::StatusOr<Schedule> schedule = Parse(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *schedule;
}

void ExpectScheduleRefused(const std::string& text, const std::string& words) {
  const absl::Status status = Parse(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

TEST(ScheduleTest, ConstantIsAlwaysOne) {
  const Schedule schedule = Make("");
  EXPECT_EQ(schedule.Factor(0, 0), 1.0);
  EXPECT_EQ(schedule.Factor(1, 0), 1.0);
  EXPECT_EQ(schedule.Factor(1'000'000'000'000, 0), 1.0);
}

TEST(ScheduleTest, WarmUpRisesLinearlyToOne) {
  const Schedule schedule = Make("warmup_steps: 4");
  EXPECT_DOUBLE_EQ(schedule.Factor(0, 0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.Factor(1, 0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.Factor(2, 0), 0.75);
  EXPECT_DOUBLE_EQ(schedule.Factor(3, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.Factor(4, 0), 1.0);
}

TEST(ScheduleTest, StepMultipliesByGammaPeriodically) {
  const Schedule schedule = Make("shape: STEP step_size: 3 gamma: 0.5");
  EXPECT_DOUBLE_EQ(schedule.Factor(0, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.Factor(2, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.Factor(3, 0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.Factor(5, 0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.Factor(6, 0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.Factor(30, 0), std::pow(0.5, 10));
}

TEST(ScheduleTest, StepSizeCountsFromTheStartOfTheWarmUp) {
  const Schedule schedule = Make("shape: STEP step_size: 3 gamma: 0.5 warmup_steps: 4");
  EXPECT_DOUBLE_EQ(schedule.Factor(2, 0), 0.75);
  EXPECT_DOUBLE_EQ(schedule.Factor(3, 0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.Factor(6, 0), 0.25);
}

TEST(ScheduleTest, CosineFallsToItsFinalFraction) {
  const Schedule schedule = Make("shape: COSINE total_steps: 12 final_fraction: 0.2");
  EXPECT_DOUBLE_EQ(schedule.Factor(0, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.Factor(4, 0), 0.2 + 0.8 * 0.75);  // cos(pi / 3) = 1 / 2
  EXPECT_DOUBLE_EQ(schedule.Factor(6, 0), 0.6);
  EXPECT_DOUBLE_EQ(schedule.Factor(12, 0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.Factor(1000, 0), 0.2);
}

TEST(ScheduleTest, CosineStartsAfterTheWarmUp) {
  const Schedule schedule = Make("shape: COSINE total_steps: 14 warmup_steps: 4");
  EXPECT_DOUBLE_EQ(schedule.Factor(0, 0), 0.25);
  EXPECT_DOUBLE_EQ(schedule.Factor(3, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.Factor(4, 0), 1.0);
  EXPECT_DOUBLE_EQ(schedule.Factor(9, 0), 0.5);
  EXPECT_NEAR(schedule.Factor(14, 0), 0.0, 1e-15);
}

TEST(ScheduleTest, BySamplesTheFactorFollowsTheJobProgress) {
  const Schedule schedule =
      Make("shape: COSINE total_steps: 16 warmup_steps: 4 final_fraction: 0.2 by: SAMPLES");
  const Schedule applied =
      Make("shape: COSINE total_steps: 16 warmup_steps: 4 final_fraction: 0.2");
  for (uint32_t step = 0; step < 16; ++step) {
    EXPECT_DOUBLE_EQ(schedule.Factor(/*applied=*/7, step << 28), applied.Factor(step, 0)) << step;
  }
  // Halfway between two steps, the factor is interpolated.
  EXPECT_DOUBLE_EQ(schedule.Factor(0, 3u << 27), 2.5 / 4);
  EXPECT_NEAR(schedule.Factor(0, UINT32_MAX), 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(
      Make("shape: STEP step_size: 3 gamma: 0.5 total_steps: 16 by: SAMPLES").Factor(0, 7u << 28),
      0.25);
}

TEST(ScheduleTest, ErrorNamesTheInvalidField) {
  ExpectScheduleRefused("warmup_steps: -1", "optimizer.schedule.warmup_steps is -1");
  ExpectScheduleRefused("shape: STEP gamma: 0.1", "optimizer.schedule.step_size is 0");
  ExpectScheduleRefused("shape: STEP step_size: 2", "optimizer.schedule.gamma");
  ExpectScheduleRefused("shape: COSINE", "optimizer.schedule.total_steps is 0");
  ExpectScheduleRefused("shape: COSINE total_steps: 5 warmup_steps: 5",
                        "more than its warmup_steps, which are 5");
  ExpectScheduleRefused("by: SAMPLES", "optimizer.schedule.total_steps is missing");
}

TEST(ScheduleTest, RefusesAnUnknownShape) {
  ScheduleSpec spec;
  spec.set_shape(static_cast<ScheduleSpec::Shape>(99));
  const absl::Status status = Schedule::Create(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("optimizer.schedule.shape is 99"));
}

}  // namespace
}  // namespace torchps
