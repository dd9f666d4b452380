#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "server/coordinator/job_terms.h"

namespace torchps {
namespace {

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

TEST(JobPhaseTest, AnnouncesAtOnceWithoutADirectory) {
  JobPhase phase(/*is_kept=*/false);
  phase.Enter(JobStatus::RUNNING, At(1));
  EXPECT_EQ(phase.told(), JobStatus::GATHERING);
  phase.Publish();
  EXPECT_EQ(phase.told(), JobStatus::RUNNING);
}

TEST(JobPhaseTest, AnnouncesAPhaseOnceItsRevisionIsSynced) {
  JobPhase phase(/*is_kept=*/true);
  phase.Enter(JobStatus::GATHERING, At(1));
  phase.Changed();
  phase.Enter(JobStatus::RUNNING, At(2));
  const uint64_t entered = phase.revision();
  phase.ChangedVitally();

  phase.OnSynced(entered - 1);
  phase.Publish();
  EXPECT_EQ(phase.told(), JobStatus::GATHERING);
  phase.OnSynced(entered);
  phase.OnSynced(entered - 1);  // an outdated sync report does not revert the phase
  phase.Publish();
  EXPECT_EQ(phase.told(), JobStatus::RUNNING);
}

TEST(JobPhaseTest, AnnouncesARestoredPhaseOnceItIsSynced) {
  JobPhase phase(/*is_kept=*/true);
  phase.Restore(JobStatus::DONE, 7, At(3), At(100));
  EXPECT_GT(phase.revision(), 7u);
  EXPECT_EQ(phase.vital_revision(), phase.revision());
  phase.Publish();
  EXPECT_EQ(phase.told(), JobStatus::GATHERING);
  phase.OnSynced(7);
  phase.Publish();
  EXPECT_EQ(phase.told(), JobStatus::DONE);
}

TEST(JobPhaseTest, OnlyVitalChangesAndPhasesRaiseTheVitalRevision) {
  JobPhase phase(/*is_kept=*/true);
  phase.ChangedVitally();
  const uint64_t vital = phase.revision();
  phase.Changed();
  EXPECT_EQ(phase.vital_revision(), vital);
  EXPECT_GT(phase.revision(), vital);
  phase.Enter(JobStatus::INITIALIZING, At(1));
  EXPECT_EQ(phase.vital_revision(), phase.revision());
}

TEST(JobPhaseTest, RunningTimeExcludesPauses) {
  JobPhase phase(/*is_kept=*/false);
  phase.Enter(JobStatus::GATHERING, At(10));
  EXPECT_EQ(phase.RunningTime(At(20)), At(0));
  phase.Enter(JobStatus::RUNNING, At(30));
  EXPECT_EQ(phase.RunningTime(At(35)), At(5));

  // The coordinator restarts with another clock and waits for the workers.
  JobPhase later(/*is_kept=*/false);
  later.Restore(JobStatus::RUNNING, phase.revision(), phase.RunningTime(At(35)), At(1000));
  EXPECT_EQ(later.RunningTime(At(1002)), At(7));
  later.Restore(JobStatus::RUNNING, phase.revision(), phase.RunningTime(At(35)), At(1000));
  later.Enter(JobStatus::GATHERING, At(1000));
  EXPECT_EQ(later.RunningTime(At(2000)), At(5));
  later.Enter(JobStatus::RUNNING, At(2000));
  EXPECT_EQ(later.RunningTime(At(2003)), At(8));
  later.Enter(JobStatus::DONE, At(2004));
  EXPECT_EQ(later.RunningTime(At(9999)), At(9));
}

}  // namespace
}  // namespace torchps
