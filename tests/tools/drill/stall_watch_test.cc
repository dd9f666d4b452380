#include <gtest/gtest.h>

#include "torchps/tools/drill/recovery_watch.h"

namespace torchps {
namespace {

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

TEST(StallWatch, AFaultsLongestStallIsOfAWorkerThatItDidNotHit) {
  StallWatch watch;
  for (const int worker : {0, 1}) watch.OnProgress(worker, At(0));
  watch.OnProgress(0, At(5));  // the stall from 5 s to 8 s begins before the fault
  watch.OnProgress(1, At(5));
  const int cut = watch.Begin("partition", {1}, At(6));
  watch.OnProgress(0, At(8));
  watch.OnProgress(0, At(9));
  watch.End(cut, At(9.5));
  watch.OnProgress(0, At(10));
  watch.OnProgress(1, At(20));
  EXPECT_EQ(watch.by_kind().at("partition").times, 1);
  EXPECT_EQ(watch.by_kind().at("partition").longest_stall, At(3)) << "worker 0, from 5 to 8";
  EXPECT_EQ(watch.longest_stall(), At(15)) << "worker 1, which the fault hit";
}

TEST(StallWatch, IgnoresStallsOfWorkersHitByAFault) {
  StallWatch watch;
  for (const int worker : {0, 1}) watch.OnProgress(worker, At(0));
  watch.End(watch.Begin("kill", {1}, At(1)), At(1));
  watch.End(watch.Begin("kill", {}, At(2)), At(2));
  watch.OnProgress(1, At(4));
  EXPECT_FALSE(watch.by_kind().at("kill").longest_stall.has_value());
  watch.OnProgress(0, At(3));
  EXPECT_EQ(watch.by_kind().at("kill").times, 2);
  EXPECT_EQ(watch.by_kind().at("kill").longest_stall, At(3));
}

TEST(StallWatch, AStallEndsWhenTheWorkerFinishes) {
  StallWatch watch;
  watch.OnProgress(0, At(0));
  const int freeze = watch.Begin("freeze", {}, At(1));
  watch.OnDone(0, At(2));
  watch.End(freeze, At(30));
  EXPECT_EQ(watch.by_kind().at("freeze").longest_stall, At(2));
  EXPECT_EQ(watch.longest_stall(), At(2));
}

}  // namespace
}  // namespace torchps
