// Tests restarts of the coordinator, resumed jobs, the coordinator's part in checkpoints, and slots
// with non-finite gradients.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "torchps/common/hash.h"
#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rig = JobCoordinatorRig;
using Return = JobCoordinator::Return;

TEST(CoordinatorRestartTest, WorkersKeepSlotsAndLeasesAfterARestart) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  NextWorkRequest first = rig.NextRequest(workers[0]);
  const Later<NextWorkReply> before = rig.Send(first);
  ASSERT_EQ(Words(before), "1: 0-16");
  ASSERT_TRUE(rig.Restart().ok());

  EXPECT_TRUE(rig.Renew(workers[0]).ok());
  const Later<NextWorkReply> again = rig.Send(first);
  ASSERT_EQ(Words(again), "1: 0-16") << "the answer may have been lost";
  EXPECT_EQ(again.answer()->lease().id(), before.answer()->lease().id());
  Rig::Hold(workers[0], again);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "1: 16-32");
  EXPECT_EQ(Words(rig.Ask(workers[1])), "1: 32-40");
  EXPECT_EQ(rig.Status().epoch(0).used(), 16);
}

TEST(CoordinatorRestartTest, SlotLeasesStartAnewAfterARestart) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  rig.Pass(absl::Seconds(9));
  ASSERT_TRUE(rig.Restart().ok());
  rig.Pass(absl::Seconds(9));
  EXPECT_TRUE(rig.Renew(workers[1]).ok());
  rig.Pass(absl::Seconds(2));
  EXPECT_TRUE(absl::IsAborted(rig.Renew(workers[0]))) << "a slot that does not return expires";
  EXPECT_EQ(Words(rig.Ask(workers[1])), "1: 0-16*");
}

TEST(CoordinatorRestartTest, AJoinedProcessKeepsItsSlotAfterARestart) {
  Rig rig;
  const Rig::Worker anna = rig.NewWorker();
  ASSERT_TRUE(rig.Restart().ok());
  JoinRequest again = Rig::SmallJob();
  again.set_nonce(anna.nonce);
  const absl::StatusOr<JoinReply> same = rig.Join(again);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->slot(), anna.slot);
  EXPECT_EQ(same->incarnation(), anna.incarnation);
  EXPECT_GT(rig.NewWorker().incarnation, anna.incarnation + 1000)
      << "an incarnation assigned after the save is not reused";
}

TEST(CoordinatorRestartTest, InitializesTheModelOnceDespiteARestart) {
  Rig rig;
  const Rig::Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  const Later<AwaitStartReply> annas = rig.AwaitStart(anna);
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(Words(annas), "UNAVAILABLE");
  EXPECT_EQ(Words(rig.AwaitStart(bert)), "parked");
  EXPECT_EQ(Words(rig.AwaitStart(anna)), "INITIALIZE");
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(Words(rig.AwaitStart(anna, /*initialized=*/true)), "START");
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(Words(rig.AwaitStart(anna, /*initialized=*/true)), "START");
  EXPECT_EQ(Words(rig.AwaitStart(bert)), "START");
}

TEST(CoordinatorRestartTest, AnOutdatedStateMakesWorkersJoinAgain) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  const CoordinatorState old = rig.coordinator().Save(rig.now());
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 16-32");
  ASSERT_TRUE(rig.Restart(old, Return::kInPlace).ok());
  EXPECT_EQ(Words(rig.Ask(workers[0])), "ABORTED");
}

TEST(CoordinatorRestartTest, ARestoredCopyNeverReusesIncarnations) {
  Rig rig;
  rig.NewWorker();
  const CoordinatorState copy = rig.coordinator().Save(rig.now());
  Incarnation last = 0;
  for (int incarnations = 0; incarnations < 5; ++incarnations) {
    ASSERT_TRUE(rig.Restart().ok());
    last = rig.coordinator().Save(rig.now()).next_incarnation() - 1;
  }
  ASSERT_TRUE(rig.Restart(copy, Return::kFromCopy).ok());
  EXPECT_GT(rig.NewWorker().incarnation, last);
}

TEST(CoordinatorRestartTest, ContinuesTheRunningTimeAfterARestart) {
  Rig rig;
  rig.Start(2);
  rig.Pass(absl::Seconds(5));
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_DOUBLE_EQ(rig.Status().running_seconds(), 5);
  rig.Pass(absl::Seconds(2));
  EXPECT_DOUBLE_EQ(rig.Status().running_seconds(), 7);
}

TEST(CoordinatorResumeTest, ReturnsAllLeasesAndWaitsForWorkers) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  ASSERT_EQ(Words(rig.Ask(workers[1])), "1: 16-32");
  ASSERT_EQ(Words(rig.Ask(workers[1])), "1: 32-40");
  rig.Pass(absl::Seconds(3));
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());

  EXPECT_TRUE(absl::IsAborted(rig.Renew(workers[0])));
  const Rig::Worker carla = rig.NewWorker();
  EXPECT_EQ(Words(rig.AwaitStart(carla)), "parked");
  Rig::Worker dora = rig.NewWorker();
  EXPECT_DOUBLE_EQ(rig.Status().running_seconds(), 3);
  EXPECT_EQ(Words(rig.AwaitStart(dora)), "START") << "the model is initialized";
  EXPECT_EQ(Words(rig.Ask(dora)), "1: 0-16*");
  EXPECT_EQ(Words(rig.Ask(dora)), "1: 32-40*");
  EXPECT_EQ(Words(rig.Ask(dora)), "evaluate 1");
  EXPECT_EQ(rig.Status().epoch(0).used(), 40);
}

TEST(CoordinatorResumeTest, JoinersGetTheCheckpointNumberAndLaterIncarnations) {
  Rig rig;
  const std::vector<Rig::Worker> before = rig.Start(2);
  CoordinatorState saved = rig.coordinator().Save(rig.now());
  EXPECT_FALSE(IsOfLaterGeneration(before[1].incarnation, saved.next_incarnation()));
  saved.set_resumed_checkpoint(4);
  ASSERT_TRUE(rig.Restart(saved, Return::kResume).ok());
  for (int life = 0; life < 2; ++life) {
    JoinRequest join = Rig::SmallJob();
    join.set_nonce(77 + life);
    const absl::StatusOr<JoinReply> joined = rig.Join(join);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(joined->resumed_checkpoint(), 4u);
    EXPECT_TRUE(IsOfLaterGeneration(joined->incarnation(), saved.next_incarnation()));
    // Only a resume begins a later generation of incarnations, not a restart.
    const CoordinatorState present = rig.coordinator().Save(rig.now());
    ASSERT_TRUE(rig.Restart().ok());
    EXPECT_FALSE(IsOfLaterGeneration(rig.NewWorker().incarnation, present.next_incarnation()));
    ASSERT_TRUE(rig.Restart(present, Return::kInPlace).ok());
  }
}

TEST(CoordinatorResumeTest, TheFirstJoinSetsTheServerCount) {
  Rig rig;
  rig.Start(2);
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());
  JoinRequest three = Rig::SmallJob();
  three.set_nonce(77);
  three.set_server_count(3);
  for (const char* address : {"a:1", "b:2", "c:3"}) three.add_server_address(address);
  EXPECT_TRUE(rig.Join(three).ok());
  JoinRequest two = Rig::SmallJob();
  two.set_nonce(78);
  EXPECT_THAT(std::string(rig.Join(two).status().message()), HasSubstr("3 servers"));
  EXPECT_THAT(rig.coordinator().Save(rig.now()).server_address(), ElementsAre("a:1", "b:2", "c:3"));
}

TEST(CoordinatorResumeTest, AnOldJobKeepsTheOldDefaults) {
  for (const Return how : {Return::kInPlace, Return::kResume}) {
    Rig rig;
    rig.Start(2);
    CoordinatorState saved = rig.coordinator().Save(rig.now());
    ASSERT_TRUE(saved.job().consistency().has_mode());
    saved.mutable_job()->mutable_consistency()->clear_mode();
    saved.mutable_job()->mutable_training()->clear_balance();
    saved.mutable_job()->mutable_training()->clear_global_batch();
    const absl::Status restored = rig.Restart(saved, how);
    ASSERT_TRUE(restored.ok()) << restored;

    const CoordinatorState now = rig.coordinator().Save(rig.now());
    EXPECT_EQ(now.job().consistency().mode(), ConsistencySpec::ASYNC);
    EXPECT_EQ(now.job().training().balance(), TrainingSpec::EQUAL);
    EXPECT_FALSE(now.job().training().global_batch());
    JoinRequest same = Rig::SmallJob();
    same.set_nonce(77);
    EXPECT_TRUE(rig.Join(same).ok()) << rig.Join(same).status();
    JoinRequest another = same;
    another.set_nonce(78);
    another.mutable_job()->mutable_consistency()->clear_mode();
    EXPECT_FALSE(rig.Join(another).ok()) << "the mode is SYNC";
  }
}

TEST(CoordinatorResumeTest, ADoneJobStaysDone) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  while (Words(rig.Ask(workers[0])) != "done") {
    for (const int epoch : {1, 2}) rig.Report(workers[0], epoch).IgnoreError();
    ASSERT_LT(workers[0].calls, 100u);
  }
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());
  EXPECT_EQ(Words(rig.AwaitStart(rig.NewWorker())), "DONE");
}

TEST(CoordinatorResumeTest, ADoneJobContinuesWithMoreEpochs) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  while (Words(rig.Ask(workers[0])) != "done") {
    for (const int epoch : {1, 2}) rig.Report(workers[0], epoch).IgnoreError();
    ASSERT_LT(workers[0].calls, 100u);
  }
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());
  JoinRequest more = Rig::SmallJob();
  more.mutable_job()->mutable_training()->set_epochs(3);
  more.mutable_job()->mutable_optimizer()->set_learning_rate(0.001);
  more.set_nonce(77);
  const absl::StatusOr<JoinReply> joined = rig.Join(more);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->job().training().epochs(), 3);
  EXPECT_EQ(joined->job().optimizer().learning_rate(), 0.001);
  EXPECT_EQ(rig.Status().phase(), JobStatus::GATHERING);
  JoinRequest before = Rig::SmallJob();
  before.set_nonce(78);
  EXPECT_THAT(std::string(rig.Join(before).status().message()), HasSubstr("training.epochs"));
  more.set_nonce(79);
  EXPECT_TRUE(rig.Join(more).ok());
  // The changed job is saved.
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(rig.Status().job().training().epochs(), 3);
}

TEST(CoordinatorResumeTest, RefusesAForbiddenChangeByNameAndChangesNothing) {
  Rig rig;
  rig.Start(2);
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());
  JoinRequest other = Rig::SmallJob();
  other.set_nonce(77);
  other.mutable_job()->mutable_training()->set_batch_size(16);
  EXPECT_THAT(std::string(rig.Join(other).status().message()), HasSubstr("training.batch_size"));
  JoinRequest fewer = Rig::SmallJob();
  fewer.set_nonce(78);
  fewer.set_train_samples(39);
  EXPECT_THAT(std::string(rig.Join(fewer).status().message()), HasSubstr("training samples"));
  JoinRequest another = Rig::SmallJob();
  another.set_nonce(79);
  another.set_data_fingerprint(DataFingerprint{1, 3}.number());
  EXPECT_THAT(std::string(rig.Join(another).status().message()),
              HasSubstr("different test samples"));
  EXPECT_TRUE(rig.NewWorker().slot >= 0);
}

TEST(CoordinatorResumeTest, TheFirstJoinSetsAnUnknownDataFingerprint) {
  JoinRequest unknown = Rig::SmallJob();
  unknown.clear_data_fingerprint();
  Rig rig(unknown);
  rig.Start(2);
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());
  JoinRequest known = Rig::SmallJob();
  known.set_nonce(77);
  EXPECT_TRUE(rig.Join(known).ok());
  known.set_nonce(78);
  known.set_data_fingerprint(DataFingerprint{3, 0}.number());
  EXPECT_THAT(std::string(rig.Join(known).status().message()),
              HasSubstr("different training samples"));
  unknown.set_nonce(79);
  EXPECT_TRUE(rig.Join(unknown).ok());
}

// Flips bits and sets fields of a saved state. The coordinator must reject the state or continue
// from it. It must not crash, hang or hand out a sample twice.
TEST(CoordinatorStateTest, RejectsADamagedStateOrContinuesSafely) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(3);
  for (Rig::Worker& worker : workers) rig.Ask(worker);
  rig.Ask(workers[0]);
  ASSERT_TRUE(rig.Leave(workers[2], "a signal").ok());
  const std::string bytes = rig.coordinator().Save(rig.now()).SerializeAsString();
  uint64_t random = 20;
  int refused = 0, restored = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string damaged = bytes;
    const int flips = 1 + static_cast<int>(UniformBelow(random, 3));
    for (int i = 0; i < flips; ++i) {
      damaged[UniformBelow(random, damaged.size())] ^=
          static_cast<char>(1 << UniformBelow(random, 8));
    }
    CoordinatorState state;
    if (!state.ParseFromString(damaged)) continue;
    JobCoordinator coordinator(JobCoordinator::Options{5, true});
    const absl::Status status = coordinator.Restore(state, Return::kInPlace, absl::Seconds(1));
    if (!status.ok()) {
      EXPECT_TRUE(absl::IsDataLoss(status)) << status;
      EXPECT_FALSE(coordinator.has_job());
      ++refused;
      continue;
    }
    ++restored;
    // On the restored state, these calls must not crash.
    coordinator.Tick(absl::Seconds(100000));
    coordinator.BeginCheckpoint(absl::Seconds(100000));
    coordinator.TakeReady();
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(restored, 100);
}

TEST(CoordinatorStateTest, ErrorNamesTheInconsistentAccounting) {
  Rig rig;
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  rig.Ask(workers[1]);
  const CoordinatorState good = rig.coordinator().Save(rig.now());
  const auto refusal = [&rig](const CoordinatorState& state) {
    return std::string(rig.Restart(state, Return::kInPlace).message());
  };
  CoordinatorState twice = good;
  *twice.mutable_leases()->add_returned() = good.leases().outstanding(0).range();
  EXPECT_THAT(refusal(twice), HasSubstr("positions 0 to 16 of epoch 1 are handed out twice"));
  CoordinatorState lost = good;
  lost.mutable_leases()->mutable_outstanding()->RemoveLast();
  EXPECT_THAT(refusal(lost), HasSubstr("32 samples were handed out, but 0 are used"));
  CoordinatorState no_holder = good;
  no_holder.mutable_member(1)->set_live(false);
  EXPECT_THAT(refusal(no_holder), HasSubstr("is held by no live slot"));
  EXPECT_EQ(refusal(good), "");
}

CheckpointStatus Written() {
  CheckpointStatus status;
  status.set_bytes(1000);
  return status;
}

// Returns a job that takes checkpoints only on request.
JoinRequest CheckpointsOnRequest() {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_durability()->set_checkpoint_seconds(0);
  return terms;
}

TEST(CoordinatorCheckpointTest, TheCheckpointHasTheStateFromBeforeTheServersWrite) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  std::vector<Rig::Worker> workers = rig.Start(2);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.TakeCheckpoint();
  const auto plan = rig.coordinator().BeginCheckpoint(rig.now());
  ASSERT_TRUE(plan.has_value());
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value()) << "one at a time";
  rig.Ask(workers[0]);
  EXPECT_EQ(plan->number, 1u);
  EXPECT_EQ(plan->state.leases().epoch(0).used(), 0);
  EXPECT_EQ(plan->state.last_checkpoint(), 1u) << "the number is not reused";
  EXPECT_THAT(plan->keep, ElementsAre(1));
  rig.Pass(absl::Seconds(2));
  rig.coordinator().EndCheckpoint(Written(), rig.now());
  const CheckpointStatus status = rig.Status().checkpoint();
  EXPECT_TRUE(status.enabled());
  EXPECT_EQ(status.number(), 1u);
  EXPECT_EQ(status.bytes(), 1000u);
  EXPECT_DOUBLE_EQ(status.at_seconds(), 2);
}

TEST(CoordinatorCheckpointTest, AServerAsksForACheckpointWhenItRegisters) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  rig.Start(2);
  RegisterServerRequest request;
  request.set_job_id(rig.coordinator().Save(rig.now()).job_id());
  request.set_server_count(2);
  request.mutable_place()->set_server_index(1);
  request.mutable_place()->set_server_incarnation(5);
  request.mutable_place()->set_address("beta:7000");
  ASSERT_TRUE(rig.coordinator().RegisterServer(request, rig.now()).ok());
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  request.set_wants_checkpoint(true);
  ASSERT_TRUE(rig.coordinator().RegisterServer(request, rig.now()).ok());
  EXPECT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
}

TEST(CoordinatorCheckpointTest, ARequestGetsACheckpointThatBeginsLater) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  rig.Start(2);
  rig.TakeCheckpoint();
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  const Later<CheckpointStatus> asked = rig.TakeCheckpoint();
  rig.coordinator().EndCheckpoint(Written(), rig.now());
  rig.Deliver();
  EXPECT_FALSE(asked.given());
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(Written(), rig.now());
  rig.Deliver();
  ASSERT_TRUE(asked.given());
  EXPECT_EQ(asked.answer()->number(), 2u);
}

TEST(CoordinatorCheckpointTest, ReportsAFailureToCallerAndStatus) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  rig.Start(2);
  const Later<CheckpointStatus> asked = rig.TakeCheckpoint();
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(absl::ResourceExhaustedError("the disk is full"), rig.now());
  rig.Deliver();
  ASSERT_TRUE(asked.given());
  EXPECT_TRUE(absl::IsResourceExhausted(asked.answer().status()));
  EXPECT_EQ(rig.Status().checkpoint().last_error(), "the disk is full");
  EXPECT_EQ(rig.Status().checkpoint().failed(), 1u);
}

TEST(CoordinatorCheckpointTest, ACheckpointInterruptedByARestartIsNotCompleted) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  rig.Start(2);
  rig.TakeCheckpoint();
  ASSERT_EQ(rig.coordinator().BeginCheckpoint(rig.now())->number, 1u);
  ASSERT_TRUE(rig.Restart().ok());
  rig.TakeCheckpoint();
  const auto next = rig.coordinator().BeginCheckpoint(rig.now());
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->number, 2u);
}

TEST(CoordinatorCheckpointTest, TakesNoCheckpointBeforeAWorkerJoins) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  std::vector<Rig::Worker> workers = rig.Start(2);
  while (Words(rig.Ask(workers[0])) != "done") {
    for (const int epoch : {1, 2}) rig.Report(workers[0], epoch).IgnoreError();
    ASSERT_LT(workers[0].calls, 100u);
  }
  ASSERT_TRUE(rig.Restart(Return::kResume).ok());
  ASSERT_EQ(rig.Status().phase(), JobStatus::DONE);
  const Later<CheckpointStatus> asked = rig.TakeCheckpoint();
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value())
      << "there are no servers yet";
  ASSERT_TRUE(asked.given());
  EXPECT_TRUE(absl::IsFailedPrecondition(asked.answer().status()));
  EXPECT_THAT(std::string(asked.answer().status().message()),
              HasSubstr("no worker has joined yet"));
  rig.NewWorker();
  rig.TakeCheckpoint();
  const auto plan = rig.coordinator().BeginCheckpoint(rig.now());
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->state.server_count(), 2);
}

TEST(CoordinatorCheckpointTest, TakesNoCheckpointAtLevelNone) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_durability()->set_level(DurabilitySpec::NONE);
  Rig rig(terms, 1, /*has_directory=*/true);
  rig.Start(2);
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  const Later<CheckpointStatus> asked = rig.TakeCheckpoint();
  ASSERT_TRUE(asked.given());
  EXPECT_TRUE(absl::IsFailedPrecondition(asked.answer().status()));
  EXPECT_FALSE(rig.Status().checkpoint().enabled());
}

TEST(FirstCheckpointTest, TrainingStartsAfterTheFirstCheckpoint) {
  Rig rig(Rig::SmallJob(), 1, /*has_directory=*/true);
  const Rig::Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  const Later<AwaitStartReply> berts = rig.AwaitStart(bert);
  ASSERT_EQ(Words(rig.AwaitStart(anna)), "INITIALIZE");
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  const Later<AwaitStartReply> annas = rig.AwaitStart(anna, /*initialized=*/true);
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  EXPECT_EQ(Words(annas), "parked");
  rig.coordinator().EndCheckpoint(Written(), rig.now());
  rig.Deliver();
  EXPECT_EQ(Words(annas), "START");
  EXPECT_EQ(Words(berts), "START");
}

TEST(FirstCheckpointTest, AsksForInitialValuesAgainIfTheFirstCheckpointFails) {
  Rig rig(Rig::SmallJob(), 1, /*has_directory=*/true);
  const Rig::Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  const Later<AwaitStartReply> berts = rig.AwaitStart(bert);
  ASSERT_EQ(Words(rig.AwaitStart(anna)), "INITIALIZE");
  const Later<AwaitStartReply> annas = rig.AwaitStart(anna, /*initialized=*/true);
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(absl::FailedPreconditionError("no job here"), rig.now());
  rig.Deliver();
  EXPECT_EQ(Words(annas), "INITIALIZE") << "a server may have crashed and lost the values";
  // The coordinator restarts while the worker initializes again.
  ASSERT_TRUE(rig.Restart().ok());
  const Later<AwaitStartReply> again = rig.AwaitStart(bert);
  const Later<AwaitStartReply> second = rig.AwaitStart(anna, /*initialized=*/true);
  rig.Pass(absl::Seconds(1));
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(absl::ResourceExhaustedError("full"), rig.now());
  rig.Deliver();
  ASSERT_EQ(Words(second), "INITIALIZE");
  const Later<AwaitStartReply> third = rig.AwaitStart(anna, /*initialized=*/true);
  rig.Pass(absl::Seconds(4));
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(absl::ResourceExhaustedError("full"), rig.now());
  rig.Deliver();
  EXPECT_EQ(Words(third), "START");
  EXPECT_EQ(Words(again), "START");
}

TEST(FirstCheckpointTest, IgnoresAnInitializationOfLostValues) {
  Rig rig(Rig::SmallJob(), 1, /*has_directory=*/true);
  const Rig::Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  rig.AwaitStart(bert);
  const Later<AwaitStartReply> first = rig.AwaitStart(anna);
  ASSERT_EQ(Words(first), "INITIALIZE");
  EXPECT_EQ(Words(rig.AwaitStart(anna, /*initialized=*/true)), "parked");
  // Server 0 crashes and loses the values. The coordinator, which runs in server 0, restarts. The
  // worker has not noticed the restart yet and repeats its call.
  ASSERT_TRUE(rig.Restart().ok());
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(absl::UnavailableError("no worker has greeted it yet"),
                                  rig.now());
  rig.Deliver();
  const Later<AwaitStartReply> again =
      rig.AwaitStart(anna, /*initialized=*/true, first.answer()->initialization());
  ASSERT_EQ(Words(again), "INITIALIZE") << "the initial values are lost";
  // After another restart the coordinator still does not believe the worker.
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(Words(rig.AwaitStart(anna, true, first.answer()->initialization())), "INITIALIZE");
  rig.Pass(absl::Seconds(1));
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  const Later<AwaitStartReply> annas = rig.AwaitStart(anna, true, again.answer()->initialization());
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  rig.coordinator().EndCheckpoint(Written(), rig.now());
  rig.Deliver();
  EXPECT_EQ(Words(annas), "START");
}

TEST(LastCheckpointTest, TakesTheLastCheckpointAfterARestart) {
  Rig rig(Rig::SmallJob(), 1, /*has_directory=*/true);
  std::vector<Rig::Worker> workers = {rig.NewWorker(), rig.NewWorker()};
  rig.AwaitStart(workers[1]);
  rig.AwaitStart(workers[0]);
  rig.AwaitStart(workers[0], /*initialized=*/true);
  const auto take = [&rig] {
    ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
    rig.coordinator().EndCheckpoint(Written(), rig.now());
    rig.Deliver();
  };
  take();
  while (Words(rig.Ask(workers[0])) != "done") {
    for (const int epoch : {1, 2}) rig.Report(workers[0], epoch).IgnoreError();
    ASSERT_LT(workers[0].calls, 100u);
  }
  ASSERT_TRUE(rig.coordinator().BeginCheckpoint(rig.now()).has_value());
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_TRUE(rig.coordinator().wants_last_checkpoint());
  take();
  EXPECT_FALSE(rig.coordinator().wants_last_checkpoint());
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_FALSE(rig.coordinator().BeginCheckpoint(rig.now()).has_value()) << "already taken";
  EXPECT_FALSE(rig.coordinator().wants_last_checkpoint());
}

TEST(PublishedPhaseTest, AWorkerLearnsOfAPhaseOnlyAfterItIsSaved) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  const Rig::Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  const CoordinatorState gathering = rig.coordinator().Save(rig.now());
  rig.FillDisk(true);
  rig.AwaitStart(bert);
  const Later<AwaitStartReply> first = rig.AwaitStart(anna);
  EXPECT_EQ(Words(first), "parked") << "another worker might be chosen after a restart";
  EXPECT_EQ(rig.Status().phase(), JobStatus::GATHERING);
  rig.FillDisk(false);
  ASSERT_EQ(Words(first), "INITIALIZE");

  const CoordinatorState initializing = rig.coordinator().Save(rig.now());
  rig.FillDisk(true);
  const Later<AwaitStartReply> second = rig.AwaitStart(anna, /*initialized=*/true);
  EXPECT_EQ(Words(second), "parked");
  EXPECT_EQ(rig.Status().phase(), JobStatus::INITIALIZING);
  // The coordinator crashes at this point. It then asks for the initial values again, and the job
  // starts.
  ASSERT_TRUE(rig.Restart(initializing, Return::kInPlace).ok());
  EXPECT_EQ(Words(second), "UNAVAILABLE");
  rig.FillDisk(false);
  const Later<AwaitStartReply> berts = rig.AwaitStart(bert);
  EXPECT_EQ(Words(rig.AwaitStart(anna, /*initialized=*/true)), "START");
  EXPECT_EQ(Words(berts), "START");

  // After a power cut the coordinator has a state from before it asked this worker to initialize.
  // The worker has done nothing wrong, so the answer is not INVALID_ARGUMENT.
  ASSERT_TRUE(rig.Restart(gathering, Return::kInPlace).ok());
  EXPECT_EQ(Words(rig.AwaitStart(anna, /*initialized=*/true)), "ABORTED");
}

TEST(PublishedPhaseTest, ARestartedCoordinatorSyncsThePhaseBeforeItAnswers) {
  Rig rig(CheckpointsOnRequest(), 1, /*has_directory=*/true);
  const std::vector<Rig::Worker> workers = rig.Start(2);
  rig.FillDisk(true);
  ASSERT_TRUE(rig.Restart().ok());
  const Later<AwaitStartReply> start = rig.AwaitStart(workers[0]);
  EXPECT_EQ(Words(start), "parked");
  rig.FillDisk(false);
  EXPECT_EQ(Words(start), "START");
}

TEST(PublishedPhaseTest, WithAFullDiskTrainingContinuesAndOnlyTheEndWaits) {
  JoinRequest terms = CheckpointsOnRequest();
  terms.mutable_job()->mutable_training()->set_epochs(1);
  terms.mutable_job()->mutable_training()->set_evaluate(false);
  Rig rig(terms, 1, /*has_directory=*/true);
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.FillDisk(true);
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 16-32");
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 32-40");
  const Later<JobStatus> end = rig.AskStatus(/*wait_until_done=*/true);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "evaluate 1") << "to upload the final model";
  EXPECT_TRUE(rig.Report(workers[0], 1).ok());
  EXPECT_EQ(Words(rig.Ask(workers[0])), "go idle");
  const Later<NextWorkReply> last = rig.Ask(workers[0], /*idle=*/true);
  EXPECT_EQ(Words(last), "parked");
  EXPECT_EQ(rig.Status().phase(), JobStatus::RUNNING);
  EXPECT_FALSE(end.given());
  rig.FillDisk(false);
  EXPECT_EQ(Words(last), "done");
  EXPECT_EQ(Words(rig.Ask(workers[1])), "done");
  ASSERT_TRUE(end.given());
  EXPECT_EQ(end.answer()->phase(), JobStatus::DONE);
}

// Hands in the worker's lease, and reports that its last `in_a_row` gradients were not finite.
Later<NextWorkReply> AskAfterNonfinite(Rig& rig, Rig::Worker& worker, int in_a_row) {
  NextWorkRequest request = rig.NextRequest(worker);
  request.mutable_figures()->set_skipped_nonfinite(in_a_row);
  request.mutable_figures()->set_nonfinite_in_a_row(in_a_row);
  const Later<NextWorkReply> answer = rig.Send(request);
  Rig::Hold(worker, answer);
  return answer;
}

TEST(NonFiniteTest, RemovesASlotAfterRepeatedNonfiniteGradients) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_training()->set_quarantine_after(5);
  Rig rig(terms);
  std::vector<Rig::Worker> workers = rig.Start(2);
  ASSERT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[0], 4)), "1: 16-32");
  const Later<NextWorkReply> refused = AskAfterNonfinite(rig, workers[0], 5);
  ASSERT_EQ(Words(refused), "ABORTED");
  EXPECT_THAT(std::string(refused.answer().status().message()),
              HasSubstr("slot 0 is removed from the job: 5 gradients in a row were not finite"));
  EXPECT_EQ(rig.Status().slot(0).state(), SlotAccounting::LEFT);
  EXPECT_THAT(rig.Status().slot(0).reason(), HasSubstr("not finite"));
  EXPECT_EQ(Words(rig.Ask(workers[1])), "1: 16-32*");
  EXPECT_EQ(rig.NewWorker().slot, 0) << "another process may take the slot";
}

TEST(NonFiniteTest, TheJobFailsWhenEverySlotIsRemoved) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_training()->set_quarantine_after(5);
  Rig rig(terms);
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  rig.Ask(workers[1]);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[0], 5)), "ABORTED");
  EXPECT_EQ(rig.Status().phase(), JobStatus::RUNNING);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[1], 6)), "ABORTED");
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);
  EXPECT_EQ(rig.Status().stopped(),
            "the gradients of all slots are not finite; those of slot 1 from its step 1 on");
}

TEST(NonFiniteTest, TheJobFailsIfEachSlotWasRemovedAtSomeTime) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_training()->set_quarantine_after(5);
  Rig rig(terms);
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  rig.Ask(workers[1]);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[0], 5)), "ABORTED");
  Rig::Worker successor = rig.NewWorker();
  ASSERT_EQ(successor.slot, 0);
  rig.Ask(successor);
  EXPECT_EQ(rig.Status().phase(), JobStatus::RUNNING);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[1], 5)), "ABORTED");
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE) << "the successor has pushed nothing either";
}

TEST(NonFiniteTest, ASlotWhoseSuccessorPushesCountsAsWorkingAgain) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_training()->set_quarantine_after(5);
  Rig rig(terms);
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  rig.Ask(workers[1]);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[0], 5)), "ABORTED");
  Rig::Worker successor = rig.NewWorker();
  rig.Ask(successor);
  NextWorkRequest pushed = rig.NextRequest(successor);
  pushed.mutable_figures()->set_pushes(1);
  rig.Send(pushed);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[1], 5)), "ABORTED");
  EXPECT_EQ(rig.Status().phase(), JobStatus::RUNNING) << "slot 0 continues";
}

TEST(NonFiniteTest, RemovesNoSlotWhenQuarantineIsOff) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_training()->set_quarantine_after(0);
  Rig rig(terms);
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[0], 1000000)), "1: 16-32");
}

TEST(NonFiniteTest, WithStopJobOneNonfiniteGradientEndsTheJob) {
  JoinRequest terms = Rig::SmallJob();
  terms.mutable_job()->mutable_training()->set_nonfinite(STOP_JOB);
  Rig rig(terms);
  std::vector<Rig::Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  rig.Ask(workers[1]);
  EXPECT_EQ(Words(AskAfterNonfinite(rig, workers[1], 1)), "ABORTED");
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);
  EXPECT_THAT(rig.Status().stopped(), HasSubstr("slot 1: 1 gradient was not finite"));
  EXPECT_EQ(Words(rig.Ask(workers[0])), "done");
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_THAT(rig.Status().stopped(), HasSubstr("slot 1"));
}

}  // namespace
}  // namespace torchps
