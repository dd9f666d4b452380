#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/coordinator/job_coordinator_rig.h"
#include "torchps/server/coordinator/job_coordinator.h"

namespace torchps {
namespace {

using Rig = JobCoordinatorRig;
using Worker = JobCoordinatorRig::Worker;

// Ten epochs of 40 samples, in leases of 16. The job ends after `patience` epochs without a new
// best.
JoinRequest TenEpochs(int patience, double min_delta = 0, const std::string& best_by = "") {
  JoinRequest request = Rig::SmallJob();
  TrainingSpec& training = *request.mutable_job()->mutable_training();
  training.set_epochs(10);
  training.set_best_by(best_by);
  training.mutable_early_stopping()->set_patience(patience);
  training.mutable_early_stopping()->set_min_delta(min_delta);
  request.mutable_job()->set_workers(1);
  return request;
}

// Trains with one worker, which reports scores[i - 1] for epoch i. Returns the number of evaluated
// epochs.
int TrainWith(Rig& rig, const std::vector<double>& scores) {
  Worker worker = rig.Start(1)[0];
  for (int epoch = 0; true;) {
    const std::string words = Words(rig.Ask(worker));
    if (worker.lease != 0) continue;
    if (words != "evaluate " + std::to_string(epoch + 1)) {
      EXPECT_EQ(words, "done");
      return epoch;
    }
    EXPECT_TRUE(rig.Report(worker, epoch + 1, scores.at(epoch)).ok());
    ++epoch;
  }
}

TEST(EarlyStoppingTest, TrainsAllEpochsWithoutAPatience) {
  Rig rig(TenEpochs(/*patience=*/0));
  EXPECT_EQ(TrainWith(rig, std::vector<double>(10, 0.5)), 10);
  EXPECT_EQ(rig.Status().epochs_without_best(), 0);
}

TEST(EarlyStoppingTest, EndsTheJobWhenThePatienceIsExhausted) {
  Rig rig(TenEpochs(/*patience=*/2));
  EXPECT_EQ(TrainWith(rig, {0.5, 0.4, 0.6, 0.6, 0.1, 0.9}), 5);
  EXPECT_EQ(rig.Status().epochs_without_best(), 2);
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);
  EXPECT_EQ(rig.Status().stopped(), "") << "not a failure";
  EXPECT_EQ(rig.Status().epoch_size(), 5);
}

TEST(EarlyStoppingTest, ANewBestMustExceedTheMinimumDelta) {
  Rig rig(TenEpochs(/*patience=*/2, /*min_delta=*/0.05));
  EXPECT_EQ(TrainWith(rig, {0.5, 0.52, 0.54}), 3);
}

TEST(EarlyStoppingTest, StopsByTheMetricThatTheJobSelects) {
  // The rig's evaluations report a loss of 0 each time, so epoch 2 is not better than epoch 1.
  Rig rig(TenEpochs(/*patience=*/1, /*min_delta=*/0, "loss"));
  EXPECT_EQ(TrainWith(rig, {0.5, 0.6, 0.7}), 2);
}

TEST(EarlyStoppingTest, AfterTheStopAssignedWorkIsFinishedAndEvaluated) {
  JoinRequest terms = TenEpochs(/*patience=*/1);
  terms.mutable_job()->set_workers(2);
  Rig rig(terms);
  std::vector<Worker> workers = rig.Start(2);
  Worker& anna = workers[0];
  Worker& bert = workers[1];
  const auto evaluate = [&](int epoch, double accuracy) {
    while (true) {
      const std::string words = Words(rig.Ask(anna));
      if (anna.lease != 0) continue;
      ASSERT_EQ(words, "evaluate " + std::to_string(epoch));
      break;
    }
    if (epoch == 2) {
      EXPECT_EQ(Words(rig.Ask(bert)), "3: 0-16") << "the third epoch has begun";
    }
    ASSERT_TRUE(rig.Report(anna, epoch, accuracy).ok());
  };
  evaluate(1, 0.5);
  evaluate(2, 0.5);
  EXPECT_EQ(rig.Status().epochs_without_best(), 1);
  EXPECT_EQ(Words(rig.Ask(anna)), "go idle") << "no new range is assigned";
  EXPECT_EQ(Words(rig.Ask(bert)), "evaluate 3") << "on the trained part";
  ASSERT_TRUE(rig.Report(bert, 3, 0.9).ok());
  EXPECT_EQ(Words(rig.Ask(bert)), "done");
  EXPECT_EQ(rig.Status().epoch(2).used(), 16);
}

TEST(EarlyStoppingTest, AfterTheStopALeaversRangeIsTrainedAndEvaluated) {
  JoinRequest terms = TenEpochs(/*patience=*/1);
  terms.mutable_job()->set_workers(2);
  Rig rig(terms);
  std::vector<Worker> workers = rig.Start(2);
  Worker& anna = workers[0];
  Worker& bert = workers[1];
  std::string words;
  do words = Words(rig.Ask(anna));
  while (anna.lease != 0);
  ASSERT_EQ(words, "evaluate 1");
  ASSERT_TRUE(rig.Report(anna, 1, 0.5).ok());
  do words = Words(rig.Ask(anna));
  while (anna.lease != 0);
  ASSERT_EQ(words, "evaluate 2");
  // The other slot trains one range of epoch 3, and leaves with the next range in hand.
  EXPECT_EQ(Words(rig.Ask(bert)), "3: 0-16");
  EXPECT_EQ(Words(rig.Ask(bert)), "3: 16-32");
  ASSERT_TRUE(rig.Leave(bert, "SIGTERM").ok());
  ASSERT_TRUE(rig.Report(anna, 2, 0.5).ok());
  EXPECT_EQ(Words(rig.Ask(anna)), "3: 16-32*") << "reissued range";
  EXPECT_EQ(Words(rig.Ask(anna)), "evaluate 3");
}

TEST(EarlyStoppingTest, MarksTheModelAtTheStopAsFinal) {
  Rig rig(TenEpochs(/*patience=*/2), /*seed=*/1, /*has_directory=*/true);
  Worker worker = rig.NewWorker();
  rig.AwaitStart(worker);
  rig.AwaitStart(worker, /*initialized=*/true);
  rig.coordinator().BeginCheckpoint(rig.now());
  rig.coordinator().EndCheckpoint(CheckpointStatus(), rig.now());
  std::vector<bool> final;
  while (true) {
    const auto answer = rig.Ask(worker);
    if (worker.lease != 0) continue;
    if (answer.answer()->evaluate_epoch() == 0) break;
    final.push_back(answer.answer()->keep_model().final());
    ASSERT_TRUE(rig.Report(worker, static_cast<int>(final.size()), 0.5).ok());
  }
  EXPECT_EQ(final, (std::vector<bool>{false, false, true}));
}

TEST(EarlyStoppingTest, StaysStoppedAfterARestart) {
  Rig rig(TenEpochs(/*patience=*/1));
  EXPECT_EQ(TrainWith(rig, {0.5, 0.5}), 2);
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(rig.Status().epochs_without_best(), 1);
}

// Trains with two workers until the evaluation of epoch 2 stops the job, because it is no new best.
// Then `bert` evaluates the part of epoch 3 that was trained.
void StopInTheThirdEpoch(Rig& rig, Worker& anna, Worker& bert) {
  for (const int epoch : {1, 2}) {
    std::string words;
    do words = Words(rig.Ask(anna));
    while (anna.lease != 0);
    ASSERT_EQ(words, "evaluate " + std::to_string(epoch));
    if (epoch == 2) {
      ASSERT_EQ(Words(rig.Ask(bert)), "3: 0-16");
    }
    ASSERT_TRUE(rig.Report(anna, epoch, 0.5).ok());
  }
  ASSERT_EQ(rig.Status().epochs_without_best(), 1);
  ASSERT_EQ(Words(rig.Ask(bert)), "evaluate 3");
}

TEST(EarlyStoppingTest, AcceptsTheLastEvaluationAfterARestart) {
  JoinRequest terms = TenEpochs(/*patience=*/1);
  terms.mutable_job()->set_workers(2);
  Rig rig(terms);
  std::vector<Worker> workers = rig.Start(2);
  StopInTheThirdEpoch(rig, workers[0], workers[1]);
  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(Words(rig.Ask(workers[0])), "go idle") << "the other slot evaluates";
  ASSERT_TRUE(rig.Report(workers[1], 3, 0.25).ok());
  ASSERT_TRUE(rig.Report(workers[1], 3, 0.25).ok()) << "a repeat, after a lost answer";
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);

  ASSERT_TRUE(rig.Restart().ok());
  EXPECT_EQ(rig.Status().evaluation_size(), 3) << "reported evaluations are kept";
  ASSERT_TRUE(rig.Restart(JobCoordinator::Return::kResume).ok());
  EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);
}

TEST(EarlyStoppingTest, StaysStoppedIfTheLastEvaluationIsBest) {
  JoinRequest terms = TenEpochs(/*patience=*/1);
  terms.mutable_job()->set_workers(2);
  Rig rig(terms);
  std::vector<Worker> workers = rig.Start(2);
  StopInTheThirdEpoch(rig, workers[0], workers[1]);
  ASSERT_TRUE(rig.Report(workers[1], 3, 0.9).ok());
  ASSERT_EQ(rig.Status().phase(), JobStatus::DONE);
  for (const auto how : {JobCoordinator::Return::kInPlace, JobCoordinator::Return::kResume}) {
    ASSERT_TRUE(rig.Restart(how).ok());
    EXPECT_EQ(rig.Status().epochs_without_best(), 1);
    EXPECT_TRUE(rig.Status().epoch(2).closed());
    EXPECT_EQ(rig.Status().phase(), JobStatus::DONE);
  }
  EXPECT_EQ(Words(rig.AwaitStart(rig.NewWorker())), "DONE") << "a resumed job has ended, too";
}

}  // namespace
}  // namespace torchps
