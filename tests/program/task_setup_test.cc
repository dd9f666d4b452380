#include "torchps/program/task_setup.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(TaskSetupTest, AStopDuringSetupEndsTheProcess) {
  TaskSetup making;
  EXPECT_TRUE(making.Begin().ok());
  EXPECT_TRUE(making.Stop("terminated"));
}

TEST(TaskSetupTest, AStopAfterSetupDoesNotEndTheProcess) {
  TaskSetup making;
  EXPECT_TRUE(making.Begin().ok());
  EXPECT_TRUE(making.End().ok());
  EXPECT_FALSE(making.Stop("terminated"));
}

TEST(TaskSetupTest, SetupDoesNotBeginAfterAStop) {
  TaskSetup making;
  EXPECT_FALSE(making.Stop("terminated"));
  EXPECT_EQ(making.Begin(), absl::CancelledError("terminated"));
  EXPECT_FALSE(making.Stop("terminated")) << "setup did not begin";
}

TEST(TaskSetupTest, ASetupThatWasStoppedEndsWithCancelled) {
  TaskSetup making;
  EXPECT_TRUE(making.Begin().ok());
  EXPECT_TRUE(making.Stop("terminated"));
  EXPECT_EQ(making.End(), absl::CancelledError("terminated"));
}

}  // namespace
}  // namespace torchps
