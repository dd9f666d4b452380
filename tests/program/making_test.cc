#include "program/making.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(MakingTest, OnlyWhileTheTaskIsMadeMayAStopEndTheProcess) {
  Making making;
  EXPECT_TRUE(making.Begin().ok());
  EXPECT_TRUE(making.Stop("terminated"));
}

TEST(MakingTest, WhatHasConnectedIsToldToStopAndGivesBackWhatItHas) {
  Making making;
  EXPECT_TRUE(making.Begin().ok());
  EXPECT_TRUE(making.End().ok());
  EXPECT_FALSE(making.Stop("terminated"));
}

TEST(MakingTest, NothingIsMadeAfterAStop) {
  Making making;
  EXPECT_FALSE(making.Stop("terminated"));
  EXPECT_EQ(making.Begin(), absl::CancelledError("terminated"));
  EXPECT_FALSE(making.Stop("terminated")) << "it was not begun";
}

TEST(MakingTest, WhatIsMadeAsTheProcessIsToldToStopDoesNotConnect) {
  Making making;
  EXPECT_TRUE(making.Begin().ok());
  EXPECT_TRUE(making.Stop("terminated"));
  EXPECT_EQ(making.End(), absl::CancelledError("terminated"));
}

}  // namespace
}  // namespace torchps
