#include <gtest/gtest.h>

#include "torchps/tools/doctor/doctor_command.h"

namespace torchps {
namespace {

using Level = Finding::Level;

DurabilitySpec Spec(DurabilitySpec::Level level, int copies) {
  DurabilitySpec spec;
  spec.set_level(level);
  spec.set_checkpoint_seconds(60);
  spec.set_copies(copies);
  return spec;
}

TEST(DiskLoss, CopiesPreserveTheDurabilityLevel) {
  const Finding log = CheckDiskLoss(Spec(DurabilitySpec::LOG, 1), 2);
  EXPECT_EQ(log.level, Level::kOk);
  EXPECT_EQ(log.text, "would cost no acknowledged push: another server keeps copies of its files");
  const Finding checkpoint = CheckDiskLoss(Spec(DurabilitySpec::CHECKPOINT, 1), 3);
  EXPECT_EQ(checkpoint.level, Level::kOk);
  EXPECT_EQ(checkpoint.text,
            "would cost the training since the last checkpoint, which is taken every 60 s: another "
            "server keeps copies of its files");
}

TEST(DiskLoss, ReportsTheCheckpointInterval) {
  DurabilitySpec spec = Spec(DurabilitySpec::CHECKPOINT, 1);
  spec.set_checkpoint_steps(500);
  EXPECT_NE(CheckDiskLoss(spec, 2).text.find("taken every 60 s and every 500 steps of a slot:"),
            std::string::npos);
  spec.set_checkpoint_seconds(0);
  EXPECT_NE(CheckDiskLoss(spec, 2).text.find("taken every 500 steps of a slot:"),
            std::string::npos);
  spec.set_checkpoint_steps(0);
  EXPECT_NE(CheckDiskLoss(spec, 2).text.find("taken only by 'psctl checkpoint':"),
            std::string::npos);
}

TEST(DiskLoss, WithoutCopiesTheWholeJobIsLost) {
  const Finding apart = CheckDiskLoss(Spec(DurabilitySpec::LOG, 0), 2);
  EXPECT_EQ(apart.level, Level::kWarning);
  EXPECT_EQ(apart.text,
            "would cost the whole job, checkpoints and push log included: durability.copies is 0");
  EXPECT_NE(apart.advice.find("durability.copies to 1"), std::string::npos);
  // Copies cannot help with a single server or a single directory.
  for (const int servers : {0, 1}) {
    const Finding together = CheckDiskLoss(Spec(DurabilitySpec::CHECKPOINT, 0), servers);
    EXPECT_EQ(together.level, Level::kOk);
    EXPECT_EQ(together.text,
              "would cost the whole job, checkpoints included: durability.copies is 0");
    EXPECT_EQ(together.advice, "");
  }
  const Finding none = CheckDiskLoss(Spec(DurabilitySpec::NONE, 0), 2);
  EXPECT_EQ(none.level, Level::kOk);
  EXPECT_NE(none.text.find("like any server crash"), std::string::npos);
}

TEST(DiskLoss, WarnsAboutCopiesInOneDirectoryOrOfOneServer) {
  const Finding shared = CheckDiskLoss(Spec(DurabilitySpec::LOG, 1), 0);
  EXPECT_EQ(shared.level, Level::kWarning);
  EXPECT_NE(shared.text.find("in one directory"), std::string::npos);
  const Finding alone = CheckDiskLoss(Spec(DurabilitySpec::LOG, 1), 1);
  EXPECT_EQ(alone.level, Level::kProblem);
  EXPECT_NE(alone.text.find("one server"), std::string::npos);
}

}  // namespace
}  // namespace torchps
