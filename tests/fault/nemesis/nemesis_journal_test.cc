// Tests NemesisBook, with which the nemesis tests find lost and doubled pushes.

#include "tests/fault/nemesis/nemesis_journal.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace torchps {
namespace {

// Reads a journal with this text. Server 0 owns blocks 0, 2 and 4, and server 1 the rest.
NemesisBook Read(const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/journal";
  std::ofstream(path) << text;
  return NemesisBook::Read(path, NemesisJob::Create(DurabilitySpec::CHECKPOINT).map);
}

constexpr char kThreeSteps[] =
    "start 1\nlife 0 11 0\nlife 1 12 0\n"
    "begin 1\nack 0 1\nack 1 1\nbegin 2\nack 0 2\nack 1 2\nbegin 3\nack 0 3\n";

TEST(NemesisBook, SeparatesAcknowledgedFromUnknownSteps) {
  const NemesisBook book = Read(kThreeSteps);
  EXPECT_EQ(book.blocks[0].present, (std::set<Step>{1, 2, 3}));
  EXPECT_TRUE(book.blocks[0].unknown.empty());
  EXPECT_EQ(book.blocks[1].present, (std::set<Step>{1, 2}));
  EXPECT_EQ(book.blocks[1].unknown, (std::set<Step>{3}));
  EXPECT_EQ(book.steps, 2);
  EXPECT_EQ(book.acknowledged, 15);
  EXPECT_TRUE(book.broken_promises.empty());
}

TEST(NemesisBook, ReadsWhenAllServersHadAcknowledgedAStep) {
  const NemesisBook book = Read(std::string(kThreeSteps) + "ack 1 3\ndone 3 1500000\n");
  EXPECT_EQ(book.done, (std::vector<absl::Duration>{absl::Milliseconds(1500)}));
  EXPECT_EQ(book.steps, 3);
}

TEST(NemesisBook, IgnoresAnIncompleteLastLine) {
  EXPECT_EQ(Read(std::string(kThreeSteps) + "ack 1 3").blocks[1].present, (std::set<Step>{1, 2}));
}

TEST(NemesisBook, RollsBackStepsThatARestoredServerLost) {
  // The restored server 0 has block 0 at step 1, and blocks 2 and 4 at step 2.
  const NemesisBook book = Read(std::string(kThreeSteps) + "life 0 21 0 1 2 2\n");
  EXPECT_EQ(book.rolled_back, 4);
  EXPECT_EQ(book.restored_lives, 1);
  EXPECT_EQ(book.blocks[0].present, (std::set<Step>{1}));
  EXPECT_EQ(book.blocks[2].present, (std::set<Step>{1, 2}));
  EXPECT_EQ(book.blocks[1].present, (std::set<Step>{1, 2})) << "a block of the other server";
  EXPECT_TRUE(book.broken_promises.empty());
}

TEST(NemesisBook, ReportsStepsLostWithoutARestartOrDespiteACompleteLog) {
  const std::string served = "life 0 21 0 3 3 3\n";
  EXPECT_EQ(Read(kThreeSteps + served + "life 0 21 0 3 2 3\n").broken_promises.size(), 1u);
  EXPECT_EQ(Read(std::string(kThreeSteps) + "life 0 21 1 3 2 2\n").broken_promises.size(), 2u);
  EXPECT_TRUE(Read(kThreeSteps + served + "life 0 22 1 3 3 3\n").broken_promises.empty());
}

TEST(NemesisBook, AnUnansweredPushIsKnownAfterTheNextProcessSaysHello) {
  // Server 1 tells the next process that step 3 did not arrive, so another push uses step 3.
  const NemesisBook book =
      Read(std::string(kThreeSteps) + "start 2\nlife 0 11 0 3 3 3\nlife 1 12 0 2 2 2\n");
  EXPECT_TRUE(book.blocks[1].unknown.empty());
  EXPECT_EQ(book.incarnations, 2);
  // If the same process continues, it repeats the push of step 3.
  EXPECT_EQ(Read(std::string(kThreeSteps) + "life 1 22 0 2 2 2\n").blocks[1].unknown,
            (std::set<Step>{3}));
}

}  // namespace
}  // namespace torchps
