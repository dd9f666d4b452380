#include "torchps/tools/run_plan/targets.h"

#include <gtest/gtest.h>

namespace torchps {
namespace {

std::string Line(double seconds, const std::string& loss, const std::string& accuracy,
                 const std::string& rmse) {
  return "{\"seconds\":" + std::to_string(seconds) +
         ",\"samples_used\":6400,\"pushes\":200,\"samples\":1000,\"loss\":" + loss +
         ",\"metrics\":{\"accuracy\":" + accuracy + ",\"rmse\":" + rmse +
         "},\"lower_is_better\":[\"loss\",\"rmse\"]}";
}

TEST(TargetsTest, RecordsEachTargetWhenItIsFirstReached) {
  Targets targets = *Targets::Parse({"accuracy:0.98", "loss:0.5", "rmse:2", "accuracy:0.5"});
  const auto first = targets.Hear(Line(5, "0.7", "0.6", "2.5"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->row, "after 5.00 s   test accuracy 60.00 %   test rmse 2.5   test loss 0.7");
  EXPECT_EQ(first->lines, (std::vector<std::string>{
                              "target accuracy 0.5: after 5.00 s, 6,400 samples and 200 pushes"}));
  const auto second = targets.Hear(Line(10, "0.5", "0.97", "1.5"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->lines.size(), 2);
  // The metric is worse again, but the target stays reached.
  ASSERT_TRUE(targets.Hear(Line(15, "0.9", "0.4", "3")).ok());

  ASSERT_EQ(targets.reached().size(), 4);
  EXPECT_FALSE(targets.reached()[0].has_seconds());
  EXPECT_EQ(targets.reached()[1].seconds(), 10);
  EXPECT_EQ(targets.reached()[2].seconds(), 10);
  const Report::Target& accuracy = targets.reached()[3];
  EXPECT_EQ(accuracy.metric(), "accuracy");
  EXPECT_EQ(accuracy.value(), 0.5);
  EXPECT_EQ(accuracy.seconds(), 5);
  EXPECT_EQ(accuracy.samples(), 6400);
  EXPECT_EQ(accuracy.pushes(), 200);
}

TEST(TargetsTest, NonFiniteValuesReachNoTarget) {
  Targets targets = *Targets::Parse({"loss:0.5", "accuracy:0.1"});
  const auto heard = targets.Hear(Line(5, "null", "null", "1"));
  ASSERT_TRUE(heard.ok()) << heard.status();
  EXPECT_EQ(heard->lines, std::vector<std::string>());
  EXPECT_EQ(heard->row, "after 5.00 s   test rmse 1   test loss not finite");
}

TEST(TargetsTest, ErrorNamesATargetThatIsNotMeasured) {
  Targets targets = *Targets::Parse({"acuracy:0.98"});
  EXPECT_EQ(targets.Hear(Line(5, "0.7", "0.6", "2.5")).status().message(),
            "--target=acuracy:0.98: the program does not measure that; did you mean accuracy? "
            "it measures accuracy, "
            "loss, rmse");
}

TEST(TargetsTest, RefusesAPercentageForAnAccuracy) {
  EXPECT_EQ(Targets::Parse({"accuracy:90"}).status().message(),
            "--target=accuracy:90: expected a fraction from 0 to 1, as accuracy:0.9");
  EXPECT_EQ(Targets::Parse({"top5_accuracy:101"}).status().message(),
            "--target=top5_accuracy:101: expected a fraction from 0 to 1");
  EXPECT_TRUE(Targets::Parse({"accuracy:1", "loss:90"}).ok());
}

TEST(TargetsTest, RejectsATargetOutsideTheProgramsMetrics) {
  const Targets targets = *Targets::Parse({"loss:1", "rmse:2"});
  EXPECT_EQ(targets.CheckMetrics({"loss", "rmse", "mae"}), absl::OkStatus());
  EXPECT_EQ(targets.CheckMetrics({"loss", "accuracy"}).message(),
            "--target=rmse:2: the program does not measure that; it measures loss, accuracy");
}

TEST(TargetsTest, RejectsMalformedTargets) {
  const std::string expected = ": expected METRIC:VALUE, as accuracy:0.98 or loss:2.5";
  for (const std::string value : {"accuracy", "accuracy:", ":0.98", "accuracy:98%", "loss:nan"}) {
    EXPECT_EQ(Targets::Parse({value}).status().message(), "--target=" + value + expected);
  }
  EXPECT_EQ(Targets::Parse({"loss:2", "loss:2.0"}).status().message(),
            "--target=loss:2.0 is given twice");
  EXPECT_TRUE(Targets::Parse({})->empty());
}

TEST(TargetsTest, QuotesALineThatIsNotAMeasurement) {
  Targets targets;
  EXPECT_FALSE(IsMeasured("torchps_worker done slot=0 pushes=3"));
  EXPECT_TRUE(IsMeasured(Line(5, "0.7", "0.6", "2.5")));
  const absl::Status status = targets.Hear("{\"seconds\":1}").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(
      status.message().find("the evaluator wrote '{\"seconds\":1}', which is not a measurement"),
      std::string::npos);
}

}  // namespace
}  // namespace torchps
