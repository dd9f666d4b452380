#include "torchps/server/coordinator/job_work.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

// Two epochs of four samples, in leases of two. Each epoch is evaluated.
JobTerms Terms() {
  JobTerms terms;
  TrainingSpec& training = *terms.job.mutable_training();
  training.set_epochs(2);
  training.set_batch_size(2);
  training.set_accumulate(1);
  training.set_lease_batches(1);
  training.set_evaluate(true);
  terms.train_samples = 4;
  return terms;
}

MemberState Member(SlotId slot, Incarnation incarnation) {
  MemberState member;
  member.set_slot(slot);
  member.set_incarnation(incarnation);
  return member;
}

StepFigures Figures(uint64_t samples, double loss_sum) {
  StepFigures figures;
  figures.set_samples(samples);
  figures.set_loss_sum(loss_sum);
  return figures;
}

// Returns a request that finishes `lease`, with the member as its holder.
NextWorkRequest HandIn(uint64_t lease, const MemberState& member, StepFigures figures) {
  NextWorkRequest request;
  request.set_slot(member.slot());
  request.set_incarnation(member.incarnation());
  request.set_finished_lease(lease);
  *request.mutable_figures() = std::move(figures);
  return request;
}

class JobWorkTest : public ::testing::Test {
 protected:
  // Hands out a sample lease and finishes it, with all samples used.
  void TrainOne(MemberState* member, double loss_sum, absl::Duration running) {
    NextWorkReply reply;
    ASSERT_TRUE(work_->HandOut(member, &reply));
    ASSERT_TRUE(reply.has_lease());
    EXPECT_EQ(member->state(), SlotAccounting::TRAINING);
    const absl::Status finished =
        work_->Finish(HandIn(reply.lease().id(), *member, Figures(2, loss_sum)), running);
    ASSERT_TRUE(finished.ok()) << finished;
  }

  std::unique_ptr<JobWork> work_ = std::make_unique<JobWork>(Terms(), /*keeps_models=*/false);
};

TEST_F(JobWorkTest, TheSlotThatClosesAnEpochEvaluatesIt) {
  MemberState first = Member(0, 1);
  MemberState second = Member(1, 2);
  TrainOne(&first, 1.0, absl::Seconds(1));
  TrainOne(&second, 3.0, absl::Seconds(2));
  NextWorkReply reply;
  ASSERT_TRUE(work_->HandOut(&second, &reply));
  EXPECT_EQ(reply.evaluate_epoch(), 1);
  EXPECT_EQ(second.evaluating(), 1);
  EXPECT_EQ(second.state(), SlotAccounting::EVALUATING);

  JobStatus status;
  work_->Describe(&status);
  ASSERT_GE(status.epoch_size(), 1);
  EXPECT_TRUE(status.epoch(0).closed());
  EXPECT_EQ(status.epoch(0).used(), 4);
  EXPECT_DOUBLE_EQ(status.epoch(0).train_loss(), 1.0);
  EXPECT_DOUBLE_EQ(status.epoch(0).closed_at_seconds(), 2);
}

// Two slots share each batch of four.
TEST_F(JobWorkTest, ASlotJoinsTheStepThatOthersBeganBeforeItEvaluates) {
  JobTerms terms = Terms();
  terms.job.set_workers(2);
  terms.job.mutable_training()->set_epochs(3);
  terms.job.mutable_training()->set_batch_size(4);
  terms.job.mutable_training()->set_global_batch(true);
  terms.job.mutable_training()->set_balance(TrainingSpec::EQUAL);
  terms.job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  terms.job.mutable_consistency()->set_apply(ConsistencySpec::WHOLE_BATCH);
  work_ = std::make_unique<JobWork>(terms, /*keeps_models=*/false);
  MemberState first = Member(0, 1);
  MemberState second = Member(1, 2);
  const auto take = [this](MemberState* member) {
    NextWorkReply reply;
    EXPECT_TRUE(work_->HandOut(member, &reply));
    return reply;
  };
  const auto finish = [this](const NextWorkReply& work, const MemberState& member) {
    EXPECT_TRUE(work_->Finish(HandIn(work.lease().id(), member, Figures(2, 1)), {}).ok());
  };
  const NextWorkReply first_share = take(&first);
  const NextWorkReply second_share = take(&second);
  finish(first_share, first);
  const NextWorkReply next_share = take(&first);
  EXPECT_EQ(next_share.lease().epoch(), 2);
  finish(second_share, second);
  EXPECT_EQ(take(&second).lease().epoch(), 2);
  finish(next_share, first);
  EXPECT_EQ(take(&first).evaluate_epoch(), 1);
}

TEST_F(JobWorkTest, ExcludesSamplesWithoutALossFromTheMean) {
  MemberState member = Member(0, 1);
  const auto train = [&](double loss_sum, uint64_t without_loss) {
    NextWorkReply reply;
    ASSERT_TRUE(work_->HandOut(&member, &reply));
    StepFigures figures = Figures(2, loss_sum);
    figures.set_samples_without_loss(without_loss);
    ASSERT_TRUE(work_->Finish(HandIn(reply.lease().id(), member, figures), {}).ok());
  };
  const auto mean = [&] {
    JobStatus status;
    work_->Describe(&status);
    return status.epoch(0).train_loss();
  };
  // A worker may report more samples without a loss than it had samples.
  train(0, 3);
  EXPECT_TRUE(std::isnan(mean())) << mean();
  train(3.0, 1);
  EXPECT_DOUBLE_EQ(mean(), 3.0);
}

TEST_F(JobWorkTest, ReassignsTheLeaseOfADeadSlot) {
  MemberState dead = Member(0, 1);
  NextWorkReply reply;
  ASSERT_TRUE(work_->HandOut(&dead, &reply));
  const DataLease lost = reply.lease();
  work_->Release({0, 1});
  MemberState other = Member(1, 2);
  reply.Clear();
  ASSERT_TRUE(work_->HandOut(&other, &reply));
  EXPECT_TRUE(reply.lease().reissued());
  EXPECT_EQ(reply.lease().begin(), lost.begin());
  EXPECT_NE(reply.lease().id(), lost.id());
  // The dead slot's late report does not count the samples twice.
  EXPECT_TRUE(work_->Finish(HandIn(lost.id(), dead, Figures(2, 100.0)), absl::Seconds(1)).ok());
  JobStatus status;
  work_->Describe(&status);
  EXPECT_EQ(status.epoch(0).used(), 0);
}

TEST_F(JobWorkTest, IsCompleteWhenTheLastEvaluationIsReported) {
  MemberState member = Member(0, 1);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    TrainOne(&member, 1.0, absl::Seconds(epoch));
    TrainOne(&member, 1.0, absl::Seconds(epoch));
    EXPECT_FALSE(work_->Complete());
    NextWorkReply reply;
    ASSERT_TRUE(work_->HandOut(&member, &reply));
    ASSERT_EQ(reply.evaluate_epoch(), epoch);
    EvaluationResult result;
    result.set_epoch(epoch);
    work_->Report(result);
    EXPECT_TRUE(work_->WasReportedBy(0, epoch));
  }
  EXPECT_TRUE(work_->Complete());
  NextWorkReply reply;
  EXPECT_FALSE(work_->HandOut(&member, &reply));
}

TEST_F(JobWorkTest, TheEvaluationRequestSaysWhichModelToUpload) {
  work_ = std::make_unique<JobWork>(Terms(), /*keeps_models=*/true);
  MemberState member = Member(0, 1);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    TrainOne(&member, 1.0, absl::Seconds(epoch));
    TrainOne(&member, 1.0, absl::Seconds(epoch));
    NextWorkReply reply;
    ASSERT_TRUE(work_->HandOut(&member, &reply));
    ASSERT_TRUE(reply.has_keep_model());
    EXPECT_EQ(reply.keep_model().final(), epoch == 2);
    EXPECT_EQ(reply.keep_model().has_best_score(), epoch == 2) << "there was none before";
    EvaluationResult result;
    result.set_epoch(epoch);
    result.set_samples(4);
    result.set_loss(0.25);
    work_->Report(result);
  }
  EXPECT_TRUE(work_->Complete());
}

TEST_F(JobWorkTest, WithoutEvaluationsTheLastModelIsStillUploaded) {
  JobTerms terms = Terms();
  terms.job.mutable_training()->set_evaluate(false);
  work_ = std::make_unique<JobWork>(terms, /*keeps_models=*/true);
  MemberState member = Member(0, 1);
  for (int i = 0; i < 4; ++i) TrainOne(&member, 1.0, absl::Seconds(1));
  EXPECT_FALSE(work_->Complete());
  NextWorkReply reply;
  ASSERT_TRUE(work_->HandOut(&member, &reply));
  EXPECT_EQ(reply.evaluate_epoch(), 2);
  EXPECT_TRUE(reply.keep_model().final());
}

TEST_F(JobWorkTest, RejectsAnUnknownLease) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      work_->Finish(HandIn(99, Member(0, 1), Figures(2, 1.0)), absl::Seconds(1))));
}

TEST_F(JobWorkTest, RestoresTheSavedState) {
  MemberState member = Member(0, 1);
  TrainOne(&member, 1.0, absl::Seconds(1));
  TrainOne(&member, 2.0, absl::Seconds(2));
  NextWorkReply reply;
  ASSERT_TRUE(work_->HandOut(&member, &reply));
  CoordinatorState saved;
  work_->SaveTo(&saved);
  JobWork restored(Terms(), false);
  ASSERT_TRUE(restored.Restore(saved).ok());
  EXPECT_TRUE(restored.has_evaluation_of(1));
  CoordinatorState again;
  restored.SaveTo(&again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(saved, again))
      << saved.DebugString() << again.DebugString();
}

// Late pushes also measure the slot's speed. Otherwise a slot with late pushes would keep the full
// share and stay late.
TEST(JobWorkBalanceTest, MeasuresASlotWithLatePushes) {
  JobTerms terms = Terms();
  terms.job.set_workers(2);
  TrainingSpec& training = *terms.job.mutable_training();
  training.set_batch_size(32);
  training.set_balance(TrainingSpec::SPEED);
  terms.train_samples = 100000;
  JobWork work(terms, /*keeps_models=*/false);
  MemberState fast = Member(0, 1);
  MemberState slow = Member(1, 2);
  for (int round = 0; round < 20; ++round) {
    for (MemberState* member : {&fast, &slow}) {
      NextWorkReply reply;
      ASSERT_TRUE(work.HandOut(member, &reply));
      const auto samples = static_cast<uint64_t>(reply.lease().end() - reply.lease().begin());
      StepFigures figures = Figures(member == &fast ? samples : 0, 0);
      if (member == &slow) figures.set_lost_samples(samples);
      figures.set_compute_seconds(static_cast<double>(samples) / (member == &fast ? 640 : 160));
      NextWorkRequest done = HandIn(reply.lease().id(), *member, figures);
      if (member == &slow) {
        LeaseRange& lost = *done.add_lost();
        lost.set_begin(0);
        lost.set_end(static_cast<int64_t>(samples));
      }
      const absl::Status finished = work.Finish(done, absl::Seconds(round));
      ASSERT_TRUE(finished.ok()) << finished;
    }
  }
  EXPECT_NEAR(slow.batch_size(), 64.0 / 5, 2);
  EXPECT_NEAR(fast.batch_size(), 64.0 * 4 / 5, 2);
}

// Two workers share a batch of 32, with one step in each lease.
JobTerms TermsOfTwoWorkers(ConsistencySpec::Mode mode) {
  JobTerms terms = Terms();
  terms.job.set_workers(2);
  terms.job.mutable_consistency()->set_mode(mode);
  terms.job.mutable_consistency()->set_apply(ConsistencySpec::WHOLE_BATCH);
  TrainingSpec& training = *terms.job.mutable_training();
  training.set_batch_size(32);
  training.set_global_batch(true);
  training.set_balance(TrainingSpec::SPEED);
  terms.train_samples = 64;
  return terms;
}

int BatchOfNextLease(JobWork& work, MemberState* member) {
  NextWorkReply reply;
  EXPECT_TRUE(work.HandOut(member, &reply));
  EXPECT_EQ(reply.lease().batch_size(), member->batch_size());
  return reply.lease().batch_size();
}

TEST(JobWorkBalanceTest, OtherSlotsTakeOverAnEvaluatorsShare) {
  for (const auto mode : {ConsistencySpec::ASYNC, ConsistencySpec::SYNC}) {
    JobWork work(TermsOfTwoWorkers(mode), /*keeps_models=*/false);
    MemberState first = Member(0, 1);
    MemberState second = Member(1, 2);
    for (int round = 0; round < 2; ++round) {
      for (MemberState* member : {&first, &second}) {
        EXPECT_EQ(BatchOfNextLease(work, member), 16);
        ASSERT_TRUE(work.Finish(HandIn(member->lease(), *member, Figures(16, 1)), {}).ok());
      }
    }
    NextWorkReply reply;
    ASSERT_TRUE(work.HandOut(&second, &reply));
    ASSERT_EQ(reply.evaluate_epoch(), 1);
    // In SYNC the round waits for the evaluating slot, so that slot keeps its share.
    const bool sync = mode == ConsistencySpec::SYNC;
    EXPECT_EQ(BatchOfNextLease(work, &first), sync ? 16 : 32);
    EvaluationResult result;
    result.set_epoch(1);
    work.Report(result);
    if (!sync) {
      EXPECT_FALSE(work.HandOut(&second, &reply)) << "the first has the whole step";
      ASSERT_TRUE(work.Finish(HandIn(first.lease(), first, Figures(32, 1)), {}).ok());
      EXPECT_EQ(BatchOfNextLease(work, &first), 16);
    }
    EXPECT_EQ(BatchOfNextLease(work, &second), 16);
  }
}

TEST(JobWorkBalanceTest, ASlotWithoutAShareOfTheLastStepWaitsForTheNextEpoch) {
  JobTerms terms = TermsOfTwoWorkers(ConsistencySpec::ASYNC);
  terms.job.mutable_training()->set_epochs(2);
  terms.job.mutable_training()->set_evaluate(false);
  terms.train_samples = 34;
  JobWork work(terms, /*keeps_models=*/false);
  MemberState first = Member(0, 1);
  MemberState second = Member(1, 2);
  EXPECT_EQ(BatchOfNextLease(work, &first), 16);
  EXPECT_EQ(BatchOfNextLease(work, &second), 16);
  ASSERT_TRUE(work.Finish(HandIn(first.lease(), first, Figures(16, 1)), {}).ok());
  NextWorkReply last;
  ASSERT_TRUE(work.HandOut(&first, &last));
  EXPECT_EQ(last.lease().end() - last.lease().begin(), 2);
  EXPECT_EQ(last.lease().share(), 32);
  EXPECT_FALSE(last.lease().pull_again());
  ASSERT_TRUE(work.Finish(HandIn(second.lease(), second, Figures(16, 1)), {}).ok());
  NextWorkReply next;
  EXPECT_FALSE(work.HandOut(&second, &next));
  EXPECT_TRUE(work.AwaitsStep(1));
  ASSERT_TRUE(work.Finish(HandIn(first.lease(), first, Figures(2, 1)), {}).ok());
  ASSERT_TRUE(work.HandOut(&second, &next));
  EXPECT_EQ(next.lease().epoch(), 2);
  EXPECT_EQ(next.lease().batch_size(), 16);
  EXPECT_TRUE(next.lease().pull_again());
  EXPECT_EQ(BatchOfNextLease(work, &first), 16);
}

TEST(JobWorkBalanceTest, AJoinersWaitForAHangingSlotEnds) {
  JobTerms terms = TermsOfTwoWorkers(ConsistencySpec::ASYNC);
  terms.job.set_workers(1);
  JobWork work(terms, /*keeps_models=*/false);
  MemberState hanging = Member(0, 1);
  MemberState joiner = Member(1, 2);
  EXPECT_EQ(BatchOfNextLease(work, &hanging), 32);
  NextWorkReply reply;
  EXPECT_FALSE(work.HandOut(&joiner, &reply));
  EXPECT_FALSE(work.EndLongWaits(absl::Seconds(1)));
  EXPECT_FALSE(work.HandOut(&joiner, &reply));
  EXPECT_TRUE(work.EndLongWaits(absl::Seconds(2)));
  EXPECT_EQ(BatchOfNextLease(work, &joiner), 16);
}

TEST(JobWorkBalanceTest, LostSamplesGoToTheSlotThatStillWorks) {
  JobTerms terms = TermsOfTwoWorkers(ConsistencySpec::SYNC);
  terms.job.mutable_training()->set_epochs(1);
  terms.train_samples = 32;
  JobWork work(terms, /*keeps_models=*/false);
  MemberState first = Member(0, 1);
  MemberState second = Member(1, 2);
  BatchOfNextLease(work, &first);
  BatchOfNextLease(work, &second);
  NextWorkReply reply;
  ASSERT_TRUE(work.Finish(HandIn(second.lease(), second, Figures(16, 1)), {}).ok());
  EXPECT_FALSE(work.HandOut(&second, &reply));
  NextWorkRequest lost = HandIn(first.lease(), first, StepFigures());
  lost.add_lost()->set_end(16);
  ASSERT_TRUE(work.Finish(lost, {}).ok());
  EXPECT_EQ(BatchOfNextLease(work, &first), 32);
}

TEST(JobWorkBalanceTest, ReturnedSamplesOfTwoLeasesFormOnePush) {
  JobWork work(Terms(), /*keeps_models=*/false);
  MemberState first = Member(0, 1);
  MemberState second = Member(1, 2);
  BatchOfNextLease(work, &first);
  BatchOfNextLease(work, &second);
  NextWorkRequest one_lost = HandIn(first.lease(), first, Figures(1, 1));
  one_lost.add_lost()->set_begin(1);
  one_lost.mutable_lost(0)->set_end(2);
  ASSERT_TRUE(work.Finish(one_lost, {}).ok());
  work.Release({1, 2});
  NextWorkReply reply;
  ASSERT_TRUE(work.HandOut(&first, &reply));
  EXPECT_EQ(reply.lease().begin(), 1);
  EXPECT_EQ(reply.lease().end(), 4);
  EXPECT_EQ(reply.lease().batch_size(), 3);
}

TEST_F(JobWorkTest, RejectsFiguresOfAnUnstartedEpoch) {
  CoordinatorState saved;
  work_->SaveTo(&saved);
  saved.add_epoch_figures()->set_epoch(3);
  EXPECT_TRUE(absl::IsDataLoss(JobWork(Terms(), false).Restore(saved)));
}

}  // namespace
}  // namespace torchps
