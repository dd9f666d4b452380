#include "torchps/server/coordinator/job_coordinator.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;
using Rig = JobCoordinatorRig;
using Worker = JobCoordinatorRig::Worker;

JoinRequest JobWithout(const std::function<void(JoinRequest&)>& change) {
  JoinRequest request = Rig::SmallJob();
  change(request);
  return request;
}

JoinRequest OneEpoch() {
  return JobWithout(
      [](JoinRequest& join) { join.mutable_job()->mutable_training()->set_epochs(1); });
}

// Trains until the answer is not a lease. Returns that answer.
std::string TrainOn(Rig& rig, Worker& worker) {
  for (int i = 0; i < 100; ++i) {
    const std::string words = Words(rig.Ask(worker));
    if (worker.lease == 0) return words;
  }
  return "still training";
}

JoinRequest Successor(const Worker& of) {
  JoinRequest join = Rig::SmallJob();
  join.set_nonce(of.nonce + 1000);
  join.set_wanted_slot(of.slot);
  join.set_predecessor_died(true);
  return join;
}

// --- Joining -------------------------------------------------------------------------------------

TEST(JobCoordinatorTest, TheFirstJoinSubmitsTheJobAndFillsInItsSteps) {
  Rig rig;
  EXPECT_EQ(rig.Status().phase(), JobStatus::NO_JOB);
  const absl::StatusOr<JoinReply> reply = rig.Join(Rig::SmallJob());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->slot(), 0);
  EXPECT_NE(reply->incarnation(), 0u);
  EXPECT_NE(reply->job_id(), 0u);
  EXPECT_NE(reply->coordinator_incarnation(), 0u);
  EXPECT_EQ(reply->job().optimizer().schedule().total_steps(), 20) << "2 epochs of 10 pushes";
  EXPECT_EQ(rig.Status().phase(), JobStatus::GATHERING);
  EXPECT_EQ(rig.Status().parameters(), 3);
}

TEST(JobCoordinatorTest, ARepeatedJoinGetsTheSameAnswer) {
  Rig rig;
  const JoinReply first = *rig.Join(Rig::SmallJob());
  rig.Pass(absl::Seconds(3));
  EXPECT_EQ(rig.Join(Rig::SmallJob())->SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(rig.Status().slot_size(), 1);
}

TEST(JobCoordinatorTest, AnotherSeedGivesAnotherJobId) {
  Rig one(Rig::SmallJob(), 1), two(Rig::SmallJob(), 2);
  EXPECT_NE(one.Join(Rig::SmallJob())->job_id(), two.Join(Rig::SmallJob())->job_id());
}

TEST(JobCoordinatorTest, RejectsAJoinWithADifferentJob) {
  struct Case {
    std::string what;
    std::function<void(JoinRequest&)> change;
    absl::StatusCode code;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"protocol version", [](JoinRequest& join) { join.set_protocol_version(99); },
       absl::StatusCode::kFailedPrecondition,
       absl::StrCat("the coordinator speaks protocol version ", kProtocolVersion,
                    ", this worker speaks version 99")},
      {"invalid job field",
       [](JoinRequest& join) { join.mutable_job()->mutable_training()->set_batch_size(-3); },
       absl::StatusCode::kInvalidArgument, "training.batch_size"},
      {"other job field",
       [](JoinRequest& join) { join.mutable_job()->mutable_training()->set_batch_size(5); },
       absl::StatusCode::kFailedPrecondition, "training.batch_size"},
      {"other layout",
       [](JoinRequest& join) { join.mutable_layout()->mutable_segment(0)->set_shape(0, 4); },
       absl::StatusCode::kFailedPrecondition, "weight"},
      {"invalid layout",
       [](JoinRequest& join) { join.mutable_layout()->mutable_segment(0)->set_shape(0, -4); },
       absl::StatusCode::kInvalidArgument, "weight"},
      {"other data", [](JoinRequest& join) { join.set_train_samples(41); },
       absl::StatusCode::kFailedPrecondition,
       "the running job has 40 training samples, this worker sees 41"},
      {"different training samples",
       [](JoinRequest& join) {
         join.set_data_fingerprint(DataFingerprint{5, 2}.number());
       },
       absl::StatusCode::kFailedPrecondition,
       "the running job has different training samples than this worker (compared by a few of "
       "them): all workers need the same data, in the same order"},
      {"different test samples",
       [](JoinRequest& join) {
         join.set_data_fingerprint(DataFingerprint{0, 3}.number());
       },
       absl::StatusCode::kFailedPrecondition,
       "the running job has different test samples than this worker"},
      {"other servers", [](JoinRequest& join) { join.set_server_count(3); },
       absl::StatusCode::kFailedPrecondition,
       "the running job has 2 servers, this worker was given 3"},
      {"no servers", [](JoinRequest& join) { join.set_server_count(0); },
       absl::StatusCode::kInvalidArgument, "server_count is 0"},
      {"no such slot", [](JoinRequest& join) { join.set_wanted_slot(kMaxSlots); },
       absl::StatusCode::kInvalidArgument, "there is no slot 4096"},
      {"no nonce", [](JoinRequest& join) { join.set_nonce(0); }, absl::StatusCode::kInvalidArgument,
       "nonce is 0"},
      {"a slot that is held", [](JoinRequest& join) { join.set_wanted_slot(0); },
       absl::StatusCode::kResourceExhausted, "slot 0 is held by a process on here"},
  };
  Rig rig;
  rig.Start(2);
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    JoinRequest request = JobWithout(test.change);
    if (test.what != "no nonce") request.set_nonce(77);
    const absl::Status status = rig.Join(request).status();
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
  }
  EXPECT_EQ(rig.Status().phase(), JobStatus::RUNNING) << "the job continues";
  EXPECT_EQ(rig.Status().slot_size(), 2);
}

TEST(JobCoordinatorTest, ARejectedJoinSubmitsNoJob) {
  Rig rig;
  for (const auto& change : std::vector<std::function<void(JoinRequest&)>>{
           [](JoinRequest& join) { join.set_nonce(0); },
           [](JoinRequest& join) { join.set_train_samples(0); },
           [](JoinRequest& join) { join.set_wanted_slot(-2); }}) {
    EXPECT_EQ(rig.Join(JobWithout(change)).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rig.Status().phase(), JobStatus::NO_JOB);
  }
}

// --- Authentication ------------------------------------------------------------------------------

TEST(JobCoordinatorTest, RejectsCallsBeforeTheFirstJoin) {
  Rig rig;
  Worker unauthenticated;
  unauthenticated.slot = 0;
  unauthenticated.incarnation = 1;
  EXPECT_EQ(rig.Renew(unauthenticated).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Words(rig.AwaitStart(unauthenticated)), "ABORTED");
  EXPECT_EQ(Words(rig.Ask(unauthenticated)), "ABORTED");
}

TEST(JobCoordinatorTest, AbortsCallsFromAnUnknownIncarnation) {
  Rig rig;
  Worker old = rig.Start(2)[0];
  old.incarnation += 1000;
  EXPECT_EQ(rig.Renew(old).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(rig.Report(old, 1).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(rig.Leave(old).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Words(rig.AwaitStart(old)), "ABORTED");
  EXPECT_EQ(Words(rig.Ask(old)), "ABORTED");
}

TEST(JobCoordinatorTest, RejectsAnInvalidSlotInEveryCall) {
  Rig rig;
  Worker nobody = rig.Start(2)[0];
  nobody.slot = kMaxSlots;
  EXPECT_EQ(rig.Renew(nobody).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.Report(nobody, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.Leave(nobody).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Words(rig.AwaitStart(nobody)), "INVALID_ARGUMENT");
  EXPECT_EQ(Words(rig.Ask(nobody)), "INVALID_ARGUMENT");
}

TEST(JobCoordinatorTest, AnyCallRenewsTheSlotLease) {
  Rig rig;
  std::vector<Worker> workers = rig.Start(2);
  rig.Pass(absl::Seconds(9));
  rig.Ask(workers[0]);
  ASSERT_TRUE(rig.Renew(workers[1]).ok());
  rig.Pass(absl::Seconds(9));
  EXPECT_TRUE(rig.Renew(workers[0]).ok());
  rig.Pass(absl::Seconds(1));
  EXPECT_EQ(rig.Renew(workers[1]).code(), absl::StatusCode::kAborted);
}

TEST(JobCoordinatorTest, AnExpiredSlotLeaseEndsTheIncarnationAtOnce) {
  Rig rig;
  const Worker worker = rig.NewWorker();
  RenewSlotRequest request;
  request.set_slot(worker.slot);
  request.set_incarnation(worker.incarnation);
  EXPECT_EQ(rig.coordinator().RenewSlot(request, rig.now() + absl::Seconds(10)).status().code(),
            absl::StatusCode::kAborted);
}

TEST(JobCoordinatorTest, AnExpiredProcessRejoinsUnderAHigherIncarnation) {
  Rig rig;
  const JoinReply first = *rig.Join(Rig::SmallJob());
  rig.Pass(absl::Seconds(10));
  EXPECT_EQ(rig.Status().slot(0).state(), SlotAccounting::EXPIRED);
  const JoinReply again = *rig.Join(Rig::SmallJob());
  EXPECT_EQ(again.slot(), first.slot());
  EXPECT_GT(again.incarnation(), first.incarnation());
  EXPECT_EQ(rig.Status().slot(0).state(), SlotAccounting::JOINED);
}

// --- Starting ------------------------------------------------------------------------------------

TEST(JobCoordinatorTest, AsksOneWorkerToInitializeAfterGatheringAll) {
  Rig rig;
  const Worker anna = rig.NewWorker();
  const auto annas = rig.AwaitStart(anna);
  EXPECT_EQ(Words(annas), "parked");
  const Worker bert = rig.NewWorker();
  EXPECT_EQ(Words(annas), "parked") << "joined, but not awaiting the start";
  const auto berts = rig.AwaitStart(bert);
  EXPECT_EQ(Words(annas), "INITIALIZE");
  EXPECT_EQ(Words(berts), "parked");
  EXPECT_EQ(rig.Status().phase(), JobStatus::INITIALIZING);
  EXPECT_EQ(Words(rig.AwaitStart(anna)), "INITIALIZE") << "a repeat gets the same answer";
  EXPECT_EQ(Words(rig.AwaitStart(anna, true)), "START");
  EXPECT_EQ(Words(berts), "START");
  EXPECT_EQ(Words(rig.AwaitStart(anna, true)), "START") << "a repeat gets the same answer";
  EXPECT_EQ(rig.Status().phase(), JobStatus::RUNNING);
}

TEST(JobCoordinatorTest, TheStartDoesNotCountAnExpiredSlot) {
  Rig rig;
  rig.AwaitStart(rig.NewWorker());
  rig.Pass(absl::Seconds(10));
  const Worker bert = rig.NewWorker();
  EXPECT_EQ(Words(rig.AwaitStart(bert)), "parked");
  EXPECT_EQ(rig.Status().phase(), JobStatus::GATHERING);
}

TEST(JobCoordinatorTest, AsksAnotherWorkerIfTheInitializerExpires) {
  Rig rig;
  const Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  rig.AwaitStart(anna);
  const auto berts = rig.AwaitStart(bert);
  rig.Pass(absl::Seconds(6));
  ASSERT_TRUE(rig.Renew(bert).ok());
  rig.Pass(absl::Seconds(4));
  EXPECT_EQ(Words(berts), "INITIALIZE");
  EXPECT_EQ(Words(rig.AwaitStart(anna, true)), "ABORTED") << "too late";
  EXPECT_EQ(Words(rig.AwaitStart(bert, true)), "START");
}

TEST(JobCoordinatorTest, AsksTheNextJoinerIfTheInitializerLeft) {
  Rig rig(JobWithout([](JoinRequest& join) { join.mutable_job()->set_workers(1); }));
  const Worker anna = rig.NewWorker();
  EXPECT_EQ(Words(rig.AwaitStart(anna)), "INITIALIZE");
  ASSERT_TRUE(rig.Leave(anna, "out of memory").ok());
  EXPECT_EQ(Words(rig.AwaitStart(rig.NewWorker())), "INITIALIZE");
}

TEST(JobCoordinatorTest, AcceptsInitializationOnlyFromTheChosenWorker) {
  Rig rig;
  const Worker anna = rig.NewWorker(), bert = rig.NewWorker();
  EXPECT_EQ(Words(rig.AwaitStart(anna, true)), "INVALID_ARGUMENT");
  rig.AwaitStart(anna);
  rig.AwaitStart(bert);
  EXPECT_EQ(Words(rig.AwaitStart(bert, true)), "INVALID_ARGUMENT");
  EXPECT_EQ(rig.Status().phase(), JobStatus::INITIALIZING);
}

TEST(JobCoordinatorTest, ALateJoinerStartsAtOnce) {
  Rig rig;
  rig.Start(2);
  Worker late = rig.NewWorker();
  EXPECT_EQ(late.slot, 2);
  EXPECT_EQ(Words(rig.AwaitStart(late)), "START");
  EXPECT_EQ(Words(rig.Ask(late)), "1: 0-16");
}

TEST(JobCoordinatorTest, ARepeatedAwaitStartReplacesTheParkedOne) {
  Rig rig;
  const Worker anna = rig.NewWorker();
  const auto first = rig.AwaitStart(anna), second = rig.AwaitStart(anna);
  EXPECT_EQ(Words(first), "CANCELLED");
  EXPECT_EQ(Words(second), "parked");
}

TEST(JobCoordinatorTest, NeverAnswersACancelledParkedCall) {
  Rig rig;
  const Worker anna = rig.NewWorker();
  const auto gone = rig.AwaitStart(anna);
  rig.coordinator().CancelParked(rig.last_parked());
  const auto status = rig.AskStatus(true);
  rig.coordinator().CancelParked(rig.last_parked());
  rig.coordinator().CancelParked(12345);
  rig.coordinator().AbandonParked(absl::UnavailableError("the end"));
  rig.Deliver();
  EXPECT_FALSE(gone.given());
  EXPECT_FALSE(status.given());
}

TEST(JobCoordinatorTest, ShutdownAnswersEveryParkedCall) {
  Rig rig;
  const auto start = rig.AwaitStart(rig.NewWorker());
  const auto status = rig.AskStatus(true);
  rig.coordinator().AbandonParked(absl::UnavailableError("the end"));
  rig.Deliver();
  EXPECT_EQ(Words(start), "UNAVAILABLE");
  ASSERT_TRUE(status.given());
  EXPECT_EQ(status.answer().status().code(), absl::StatusCode::kUnavailable);
}

// --- Working -------------------------------------------------------------------------------------

TEST(JobCoordinatorTest, RefusesWorkBeforeTheStart) {
  Rig rig;
  Worker anna = rig.NewWorker();
  EXPECT_EQ(Words(rig.Ask(anna)), "FAILED_PRECONDITION");
}

TEST(JobCoordinatorTest, OneWorkerCompletesTheWholeJob) {
  Rig rig;
  Worker anna = rig.Start(2)[0];
  std::vector<std::string> story;
  while (story.empty() || story.back() != "done") {
    ASSERT_LT(story.size(), 20u);
    const auto answer = rig.Ask(anna);
    story.push_back(Words(answer));
    const int epoch = answer.answer()->evaluate_epoch();
    if (epoch != 0) {
      EXPECT_TRUE(rig.Report(anna, epoch).ok());
    }
  }
  EXPECT_THAT(story, testing::ElementsAre("1: 0-16", "1: 16-32", "1: 32-40", "evaluate 1",
                                          "2: 0-16", "2: 16-32", "2: 32-40", "evaluate 2", "done"));
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);
}

TEST(JobCoordinatorTest, ASyncLeaseIsExactlyOneStep) {
  Rig rig(JobWithout([](JoinRequest& join) {
    join.mutable_job()->mutable_consistency()->set_mode(ConsistencySpec::SYNC);
    join.mutable_job()->mutable_training()->set_accumulate(3);
    join.mutable_job()->mutable_training()->clear_lease_batches();
  }));
  Worker anna = rig.Start(2)[0];
  EXPECT_EQ(Words(rig.Ask(anna)), "1: 0-12");
  EXPECT_EQ(Words(rig.Ask(anna)), "1: 12-24");
}

TEST(JobCoordinatorTest, TheSlotThatClosesAnEpochEvaluatesIt) {
  Rig rig;
  std::vector<Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  rig.Ask(workers[1]);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "1: 32-40");
  EXPECT_EQ(Words(rig.Ask(workers[0])), "2: 0-16") << "a lease of epoch 1 is outstanding";
  EXPECT_EQ(Words(rig.Ask(workers[1])), "evaluate 1");
  EXPECT_EQ(rig.Status().slot(1).state(), SlotAccounting::EVALUATING);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "2: 16-32");
}

TEST(JobCoordinatorTest, WithoutEvaluationTheJobEndsAfterTraining) {
  Rig rig(JobWithout([](JoinRequest& join) {
    join.mutable_job()->mutable_training()->set_evaluate(false);
    join.mutable_job()->mutable_training()->set_epochs(1);
  }));
  Worker anna = rig.Start(2)[0];
  EXPECT_EQ(TrainOn(rig, anna), "done");
}

TEST(JobCoordinatorTest, MaxPushesEndsTheJobWithAnEvaluation) {
  Rig rig(JobWithout(
      [](JoinRequest& join) { join.mutable_job()->mutable_training()->set_max_pushes(6); }));
  Worker anna = rig.Start(2)[0];
  EXPECT_EQ(Words(rig.Ask(anna)), "1: 0-16");
  EXPECT_EQ(Words(rig.Ask(anna)), "1: 16-24");
  EXPECT_EQ(Words(rig.Ask(anna)), "evaluate 1");
  ASSERT_TRUE(rig.Report(anna, 1).ok());
  EXPECT_EQ(Words(rig.Ask(anna)), "done");
  EXPECT_EQ(rig.Status().epoch(0).used(), 24);
  EXPECT_TRUE(rig.Status().epoch(0).closed());
}

TEST(JobCoordinatorTest, IdleWorkersWaitForTheEnd) {
  Rig rig(OneEpoch());
  std::vector<Worker> workers = rig.Start(2);
  rig.Ask(workers[1]);
  EXPECT_EQ(TrainOn(rig, workers[0]), "go idle");
  const auto waiting = rig.Ask(workers[0], /*idle=*/true);
  EXPECT_EQ(Words(waiting), "parked");
  EXPECT_EQ(rig.Status().slot(0).state(), SlotAccounting::WAITING);
  EXPECT_EQ(Words(rig.Ask(workers[1])), "evaluate 1");
  EXPECT_EQ(Words(waiting), "parked") << "the evaluator may still die";
  ASSERT_TRUE(rig.Report(workers[1], 1).ok());
  EXPECT_EQ(Words(waiting), "done");
  EXPECT_EQ(Words(rig.Ask(workers[1])), "done");
}

TEST(JobCoordinatorTest, AnIdleSlotGetsAnExpiredSlotsLease) {
  Rig rig(OneEpoch());
  std::vector<Worker> workers = rig.Start(2);
  EXPECT_EQ(Words(rig.Ask(workers[1])), "1: 0-16");
  TrainOn(rig, workers[0]);
  const auto waiting = rig.Ask(workers[0], /*idle=*/true);
  rig.Pass(absl::Seconds(6));
  ASSERT_TRUE(rig.Renew(workers[0]).ok());
  rig.Pass(absl::Seconds(4));
  EXPECT_EQ(Words(waiting), "1: 0-16*");
  EXPECT_EQ(rig.Status().slot(1).state(), SlotAccounting::EXPIRED);
  EXPECT_EQ(rig.Status().epoch(0).reissued(), 16);
  EXPECT_EQ(Words(rig.Ask(workers[1])), "ABORTED") << "an expired slot cannot hand in its lease";
  Rig::Hold(workers[0], waiting);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "evaluate 1");
  EXPECT_EQ(rig.Status().epoch(0).used(), 40);
}

TEST(JobCoordinatorTest, ASuccessorTakesTheSlotWithoutWaiting) {
  Rig rig;
  std::vector<Worker> workers = rig.Start(2);
  Worker& dead = workers[1];
  EXPECT_EQ(Words(rig.Ask(dead)), "1: 0-16");
  // No time has passed, so the slot lease of the dead process still runs.
  const absl::StatusOr<JoinReply> next = rig.Join(Successor(dead));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->slot(), dead.slot);
  EXPECT_GT(next->incarnation(), dead.incarnation);
  // The old incarnation has ended and its data go to another slot, as after an expired slot lease.
  EXPECT_EQ(rig.Renew(dead).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Words(rig.Ask(dead)), "ABORTED");
  EXPECT_EQ(Words(rig.Ask(workers[0])), "1: 0-16*");
  // A Join with the same nonce comes from the same process, so it gets the same answer.
  EXPECT_EQ(rig.Join(Successor(dead))->incarnation(), next->incarnation());
}

TEST(JobCoordinatorTest, ADeadPredecessorEndsNoSlotButItsOwn) {
  Rig rig;
  const std::vector<Worker> workers = rig.Start(2);
  JoinRequest join = Successor(workers[0]);
  join.set_wanted_slot(2);
  EXPECT_EQ(rig.Join(join)->slot(), 2) << "the slot was free";
  join.set_nonce(join.nonce() + 1);
  join.set_wanted_slot(-1);
  EXPECT_EQ(rig.Join(join)->slot(), 3) << "no slot was named";
  for (const Worker& worker : workers) EXPECT_TRUE(rig.Renew(worker).ok());
  // Without `predecessor_died`, a process cannot take a live slot.
  join = Successor(workers[0]);
  join.set_nonce(5000);
  join.set_predecessor_died(false);
  EXPECT_EQ(rig.Join(join).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(JobCoordinatorTest, ReassignsTheLeaseOfASlotThatLeft) {
  Rig rig;
  std::vector<Worker> workers = rig.Start(2);
  EXPECT_EQ(Words(rig.Ask(workers[0])), "1: 0-16");
  ASSERT_TRUE(rig.Leave(workers[0], "SIGTERM").ok());
  EXPECT_TRUE(rig.Leave(workers[0], "SIGTERM").ok()) << "leaving twice succeeds";
  EXPECT_EQ(rig.Status().slot(0).state(), SlotAccounting::LEFT);
  EXPECT_EQ(rig.Status().slot(0).reason(), "SIGTERM");
  EXPECT_EQ(Words(rig.Ask(workers[1])), "1: 0-16*");
}

TEST(JobCoordinatorTest, AnotherSlotEvaluatesForADeadEvaluator) {
  Rig rig(OneEpoch());
  std::vector<Worker> workers = rig.Start(2);
  EXPECT_EQ(TrainOn(rig, workers[0]), "evaluate 1");
  EXPECT_EQ(Words(rig.Ask(workers[1])), "go idle");
  const auto waiting = rig.Ask(workers[1], /*idle=*/true);
  ASSERT_TRUE(rig.Leave(workers[0], "out of memory").ok());
  EXPECT_EQ(Words(waiting), "evaluate 1");
  ASSERT_TRUE(rig.Report(workers[1], 1, 0.75).ok());
  EXPECT_EQ(Words(rig.Ask(workers[1])), "done");
  ASSERT_EQ(rig.Status().evaluation_size(), 1);
  EXPECT_EQ(rig.Status().evaluation(0).metric(0).value(), 0.75);
}

TEST(JobCoordinatorTest, TheEvaluationOfALeaverIsAssignedBeforeTraining) {
  Rig rig;
  std::vector<Worker> workers = rig.Start(2);
  EXPECT_EQ(TrainOn(rig, workers[0]), "evaluate 1");
  ASSERT_TRUE(rig.Leave(workers[0], "out of memory").ok());
  EXPECT_EQ(Words(rig.Ask(workers[1])), "evaluate 1");
}

TEST(JobCoordinatorTest, ARepeatedCallGetsTheSameLeaseAndCountsOnce) {
  Rig rig;
  Worker anna = rig.Start(2)[0];
  rig.Ask(anna);
  NextWorkRequest second = rig.NextRequest(anna);
  second.mutable_figures()->set_samples(16);
  EXPECT_EQ(Words(rig.Send(second)), "1: 16-32");
  EXPECT_EQ(Words(rig.Send(second)), "1: 16-32");
  const JobStatus status = rig.Status();
  EXPECT_EQ(status.slot(0).figures().samples(), 16u);
  EXPECT_EQ(status.epoch(0).used(), 16);
  EXPECT_EQ(status.epoch(0).outstanding(), 16);
}

TEST(JobCoordinatorTest, ARepeatedCallReplacesTheParkedOneAndAddsItsFiguresOnce) {
  Rig rig(OneEpoch());
  std::vector<Worker> workers = rig.Start(2);
  rig.Ask(workers[1]);
  TrainOn(rig, workers[0]);
  NextWorkRequest idle = rig.NextRequest(workers[0], /*idle=*/true);
  idle.mutable_figures()->set_samples(5);
  const auto first = rig.Send(idle);
  const auto second = rig.Send(idle);
  EXPECT_EQ(Words(first), "CANCELLED");
  rig.coordinator().CancelParked(rig.last_parked());
  const auto third = rig.Send(idle);
  EXPECT_EQ(Words(second), "parked") << "cancelled by its caller";
  ASSERT_TRUE(rig.Leave(workers[1], "gone").ok());
  EXPECT_EQ(Words(third), "1: 0-16*");
  EXPECT_EQ(rig.Status().slot(0).figures().samples(), 5u);
}

TEST(JobCoordinatorTest, RejectsCallsOutOfOrder) {
  Rig rig;
  Worker anna = rig.Start(2)[0];
  rig.Ask(anna);
  const std::string before = rig.Status().epoch(0).SerializeAsString();
  const auto send = [&](const std::function<void(NextWorkRequest&)>& change) {
    Worker copy = anna;
    NextWorkRequest request = rig.NextRequest(copy);
    change(request);
    return Words(rig.Send(request));
  };
  EXPECT_EQ(send([](NextWorkRequest& request) { request.set_call(0); }), "INVALID_ARGUMENT");
  EXPECT_EQ(send([](NextWorkRequest& request) { request.set_call(7); }), "INVALID_ARGUMENT");
  EXPECT_EQ(send([](NextWorkRequest& request) { request.set_finished_lease(0); }),
            "INVALID_ARGUMENT");
  EXPECT_EQ(send([](NextWorkRequest& request) { request.set_finished_lease(99); }),
            "INVALID_ARGUMENT");
  EXPECT_EQ(rig.Status().epoch(0).SerializeAsString(), before);
  EXPECT_EQ(send([](NextWorkRequest&) {}), "1: 16-32");
}

TEST(JobCoordinatorTest, RejectsFinishingAnUnknownLease) {
  Rig rig;
  Worker anna = rig.Start(2)[0];
  anna.lease = 99;
  EXPECT_EQ(Words(rig.Ask(anna)), "INVALID_ARGUMENT");
}

TEST(JobCoordinatorTest, AcceptsOneEvaluationFromTheAssignedSlot) {
  Rig rig(OneEpoch());
  std::vector<Worker> workers = rig.Start(2);
  EXPECT_EQ(rig.Report(workers[0], 1).code(), absl::StatusCode::kInvalidArgument) << "not closed";
  EXPECT_EQ(TrainOn(rig, workers[0]), "evaluate 1");
  EXPECT_EQ(rig.Report(workers[1], 1).code(), absl::StatusCode::kInvalidArgument) << "not assigned";
  EXPECT_EQ(rig.Report(workers[0], 0).code(), absl::StatusCode::kInvalidArgument);
  Worker hasty = workers[0];
  EXPECT_EQ(Words(rig.Ask(hasty)), "INVALID_ARGUMENT") << "not reported";
  rig.Pass(absl::Seconds(2));
  ASSERT_TRUE(rig.Report(workers[0], 1, 0.9).ok());
  EXPECT_TRUE(rig.Report(workers[0], 1, 0.1).ok()) << "a repeat";
  ASSERT_EQ(rig.Status().evaluation_size(), 1);
  EXPECT_EQ(rig.Status().evaluation(0).metric(0).value(), 0.9);
  EXPECT_EQ(rig.Status().evaluation(0).at_seconds(), 2.0);
}

// --- The end and the accounting ------------------------------------------------------------------

TEST(JobCoordinatorTest, AStatusCallWaitsForTheEnd) {
  Rig rig(OneEpoch());
  Worker anna = rig.Start(2)[0];
  const auto report = rig.AskStatus(/*wait_until_done=*/true);
  TrainOn(rig, anna);
  EXPECT_FALSE(report.given());
  rig.Pass(absl::Seconds(5));
  ASSERT_TRUE(rig.Report(anna, 1).ok());
  ASSERT_TRUE(report.given());
  EXPECT_EQ(report.answer()->phase(), JobStatus::DONE);
  EXPECT_EQ(report.answer()->running_seconds(), 5.0);
  rig.Pass(absl::Seconds(5));
  EXPECT_EQ(rig.Status().running_seconds(), 5.0) << "does not increase after the end";
  EXPECT_TRUE(rig.AskStatus(true).given());
}

TEST(JobCoordinatorTest, AJoinAfterTheEndReturnsDone) {
  Rig rig(OneEpoch());
  Worker anna = rig.Start(2)[0];
  TrainOn(rig, anna);
  ASSERT_TRUE(rig.Report(anna, 1).ok());
  Worker late = rig.NewWorker();
  EXPECT_EQ(Words(rig.AwaitStart(late)), "DONE");
  EXPECT_EQ(Words(rig.Ask(late)), "done");
}

TEST(JobCoordinatorTest, ASlotThatWasAnsweredDoneCountsAsFinished) {
  Rig rig(OneEpoch());
  std::vector<Worker> workers = rig.Start(3);
  TrainOn(rig, workers[0]);
  ASSERT_TRUE(rig.Report(workers[0], 1).ok());
  EXPECT_EQ(Words(rig.Ask(workers[0])), "done");
  EXPECT_EQ(Words(rig.Ask(workers[1])), "done");
  ASSERT_TRUE(rig.Leave(workers[0]).ok());
  rig.Pass(absl::Seconds(60));
  const JobStatus status = rig.Status();
  EXPECT_EQ(status.slot(0).state(), SlotAccounting::FINISHED);
  EXPECT_EQ(status.slot(1).state(), SlotAccounting::FINISHED)
      << "did not leave, but knew of the end";
  EXPECT_EQ(status.slot(2).state(), SlotAccounting::EXPIRED) << "did not know of the end";
}

TEST(JobCoordinatorTest, SumsFiguresPerSlotAndLossPerEpoch) {
  Rig rig;
  std::vector<Worker> workers = rig.Start(2);
  rig.Ask(workers[0]);
  NextWorkRequest request = rig.NextRequest(workers[0]);
  request.mutable_figures()->set_samples(16);
  request.mutable_figures()->set_pushes(4);
  request.mutable_figures()->set_loss_sum(32);
  rig.Send(request);
  ASSERT_TRUE(rig.Leave(workers[0], "restart").ok());

  Worker next = rig.NewWorker(workers[0].slot);
  EXPECT_EQ(Words(rig.Ask(next)), "1: 16-32*");
  request = rig.NextRequest(next);
  request.mutable_figures()->set_samples(16);
  request.mutable_figures()->set_pushes(4);
  request.mutable_figures()->set_loss_sum(16);
  request.mutable_figures()->set_wait_seconds(0.5);
  rig.Send(request);

  const JobStatus status = rig.Status();
  EXPECT_EQ(status.slot(0).incarnation(), next.incarnation);
  EXPECT_EQ(status.slot(0).figures().pushes(), 8u);
  EXPECT_EQ(status.slot(0).figures().wait_seconds(), 0.5);
  EXPECT_EQ(status.epoch(0).train_loss(), 1.5);
}

TEST(JobCoordinatorTest, TruncatesLongTextsBetweenCharacters) {
  Rig rig;
  const Worker anna = rig.NewWorker();
  std::string reason;
  while (reason.size() < 1000) reason += "\u00e4\u20ac";
  ASSERT_TRUE(rig.Leave(anna, reason).ok());
  const std::string kept = rig.Status().slot(0).reason();
  EXPECT_LE(kept.size(), 512u);
  EXPECT_GT(kept.size(), 508u);
  EXPECT_EQ(kept, reason.substr(0, kept.size()));
  EXPECT_NE(static_cast<unsigned char>(reason[kept.size()]) & 0xC0, 0x80);
}

}  // namespace
}  // namespace torchps
