#include "torchps/tools/run/progress_view.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/testing/manual_clock.h"

namespace torchps {
namespace {

TEST(ProgressViewTest, WithoutATerminalPrintsARowPerInterval) {
  ManualClock clock;
  std::ostringstream out;
  ProgressView view({false, 80, absl::Seconds(5)}, 2, out, clock);
  view.SetRow(0, "a1");
  view.SetRow(1, "b1");
  clock.Advance(absl::Seconds(4));
  view.SetRow(0, "a2");
  clock.Advance(absl::Seconds(1));
  view.SetRow(0, "a3");
  EXPECT_EQ(out.str(), "a1\nb1\na3\n");
}

TEST(ProgressViewTest, ShowsTheLastTextOfARow) {
  ManualClock clock;
  std::ostringstream out;
  ProgressView view({false, 80, absl::Seconds(5)}, 1, out, clock);
  view.SetRow(0, "step 1");
  view.FinishRow(0, "done");
  EXPECT_EQ(out.str(), "step 1\ndone\n");
}

TEST(ProgressViewTest, OverwritesRowsOnATerminal) {
  ManualClock clock;
  std::ostringstream out;
  ProgressView view({true, 80, absl::Seconds(5)}, 2, out, clock);
  view.SetRow(0, "a1");
  view.SetRow(1, "b1");
  view.SetRow(0, "a2");
  EXPECT_EQ(out.str(),
            "a1\n"
            "\x1b[1A\x1b[Ja1\nb1\n"
            "\x1b[2A\x1b[Ja2\nb1\n");
}

TEST(ProgressViewTest, PrintsPermanentLinesAboveTheRows) {
  ManualClock clock;
  std::ostringstream out;
  ProgressView view({true, 80, absl::Seconds(5)}, 1, out, clock);
  view.Print("first");
  view.SetRow(0, "row");
  view.Print("second");
  EXPECT_EQ(out.str(), "first\nrow\n\x1b[1A\x1b[Jsecond\nrow\n");
}

TEST(ProgressViewTest, CutsRowsAtWholeCharacters) {
  ManualClock clock;
  std::ostringstream out;
  ProgressView view({true, 5, absl::Seconds(5)}, 1, out, clock);
  view.SetRow(0, "▇▇▇▇▇▇");
  EXPECT_EQ(out.str(), "▇▇▇▇\n");
}

}  // namespace
}  // namespace torchps
