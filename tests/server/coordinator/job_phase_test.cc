#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/coordinator/job_terms.h"

namespace torchps {
namespace {

absl::Duration Time(double seconds) { return absl::Seconds(seconds); }

TEST(JobPhaseTest, AnnouncesAtOnceWithoutADirectory) {
  JobPhase phase(/*is_kept=*/false);
  phase.Enter(JobStatus::RUNNING, Time(1));
  EXPECT_EQ(phase.told(), JobStatus::GATHERING);
  phase.Publish();
  EXPECT_EQ(phase.told(), JobStatus::RUNNING);
}

TEST(JobPhaseTest, AnnouncesAPhaseOnceItsRevisionIsSynced) {
  JobPhase phase(/*is_kept=*/true);
  phase.Enter(JobStatus::GATHERING, Time(1));
  phase.Changed();
  phase.Enter(JobStatus::RUNNING, Time(2));
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
  phase.Restore(JobStatus::DONE, 7, Time(3), Time(100));
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
  phase.Enter(JobStatus::INITIALIZING, Time(1));
  EXPECT_EQ(phase.vital_revision(), phase.revision());
}

TEST(JobPhaseTest, RunningTimeExcludesPauses) {
  JobPhase phase(/*is_kept=*/false);
  phase.Enter(JobStatus::GATHERING, Time(10));
  EXPECT_EQ(phase.RunningTime(Time(20)), Time(0));
  phase.Enter(JobStatus::RUNNING, Time(30));
  EXPECT_EQ(phase.RunningTime(Time(35)), Time(5));

  // The coordinator restarts with another clock and waits for the workers.
  JobPhase later(/*is_kept=*/false);
  later.Restore(JobStatus::RUNNING, phase.revision(), phase.RunningTime(Time(35)), Time(1000));
  EXPECT_EQ(later.RunningTime(Time(1002)), Time(7));
  later.Restore(JobStatus::RUNNING, phase.revision(), phase.RunningTime(Time(35)), Time(1000));
  later.Enter(JobStatus::GATHERING, Time(1000));
  EXPECT_EQ(later.RunningTime(Time(2000)), Time(5));
  later.Enter(JobStatus::RUNNING, Time(2000));
  EXPECT_EQ(later.RunningTime(Time(2003)), Time(8));
  later.Enter(JobStatus::DONE, Time(2004));
  EXPECT_EQ(later.RunningTime(Time(9999)), Time(9));
}

}  // namespace
}  // namespace torchps
