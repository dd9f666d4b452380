// Kills a member of a replica in the middle of a step: in the pull, the forward or backward pass,
// or the push. The other members end, all restart with a new incarnation, and each gradient is
// applied once.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/replica_rig.h"
#include "torchps/common/hash.h"
#include "torchps/common/mutex.h"
#include "torchps/data/dataset.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/stages/stages.h"

namespace torchps {
namespace {

constexpr int kStages = 3;
constexpr int kOrders = 12;
constexpr int64_t kBatch = 8;

std::shared_ptr<const Dataset> RandomRows() {
  torch::manual_seed(3);
  const torch::Tensor inputs = torch::randn({kOrders * kBatch, 12});
  return std::make_shared<TensorDataset>(inputs, torch::randint(0, 4, {kOrders * kBatch}));
}

std::vector<ModelStage> Small() {
  torch::manual_seed(4);
  using torch::nn::Linear;
  return {torch::nn::Sequential(Linear(12, 40), torch::nn::ReLU()),
          torch::nn::Sequential(Linear(40, 24), torch::nn::ReLU()),
          torch::nn::Sequential(Linear(24, 4))};
}

ReplicaRig::Options Rig(const std::string& mode) {
  ReplicaRig::Options options;
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("training { epochs: 1 batch_size: ", kBatch, " evaluate: false } ",
                   "optimizer { sgd {} learning_rate: 0.01 } consistency { mode: ", mode,
                   " prefetch: false } wire { block_bytes: 256 } membership { lease_seconds: 2 }"),
      &job));
  options.job = *NormalizeJobSpec(std::move(job));
  options.make = Small;
  options.data.train = RandomRows();
  options.servers = 2;
  options.lease = absl::Seconds(2);
  return options;
}

// Counts the started steps, which bound the number of gradients applied to a block.
class Books {
 public:
  void Note(const ReplicaRig::Moment& moment) {
    const MutexLock lock(&mutex_);
    // The leader, stage 0, begins each step before any member pushes a part of the gradient.
    if (moment.stage == 0 && moment.phase == MemberPhase::kForward) ++begun_;
  }
  int64_t begun() {
    const MutexLock lock(&mutex_);
    return begun_;
  }

 private:
  Mutex mutex_;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
};

ReplicaRig::Moment RandomMoment(uint64_t seed) {
  uint64_t random = seed;
  ReplicaRig::Moment fatal;
  fatal.stage = static_cast<int>(UniformBelow(random, kStages));
  // The leader's order 1 initializes the model.
  fatal.order = 2 + static_cast<int64_t>(UniformBelow(random, kOrders - 1));
  const MemberPhase phases[] = {MemberPhase::kForward, MemberPhase::kBackward, MemberPhase::kPull,
                                MemberPhase::kComputed, MemberPhase::kPush};
  fatal.phase = phases[UniformBelow(random, fatal.stage == 0 ? 2 : 5)];
  return fatal;
}

void KillOneAndGoOn(const std::string& mode, const ReplicaRig::Moment& fatal) {
  SCOPED_TRACE(absl::StrCat(mode, ": stage ", fatal.stage, " dies at phase ",
                            static_cast<int>(fatal.phase), " of order ", fatal.order));
  ReplicaRig rig(Rig(mode));
  Books accounting;
  const auto died = rig.Run(/*replicas=*/1, [&](const ReplicaRig::Moment& moment) {
    accounting.Note(moment);
    return moment.stage == fatal.stage && moment.phase == fatal.phase &&
           moment.order == fatal.order;
  });
  for (int stage = 0; stage < kStages; ++stage) {
    const absl::StatusCode expected =
        stage == fatal.stage ? absl::StatusCode::kCancelled : absl::StatusCode::kUnavailable;
    EXPECT_EQ(died[0][stage].code(), expected) << "stage " << stage << ": " << died[0][stage];
  }
  const auto went_on = rig.Run(/*replicas=*/1, [&](const ReplicaRig::Moment& moment) {
    accounting.Note(moment);
    return false;
  });
  for (int stage = 0; stage < kStages; ++stage) {
    EXPECT_TRUE(went_on[0][stage].ok()) << "stage " << stage << ": " << went_on[0][stage];
  }
  for (int server = 0; server < 2; ++server) {
    const ServerStatus status = rig.GetStatus(server);
    // The ledgers of all blocks name the same last step and the same incarnation.
    int64_t last_step = 0;
    uint64_t incarnation = 0;
    for (const LedgerEntryStatus& entry : status.ledger()) {
      if (last_step == 0) last_step = entry.last_step();
      if (incarnation == 0) incarnation = entry.incarnation();
      EXPECT_EQ(entry.last_step(), last_step) << "block " << entry.block();
      EXPECT_EQ(entry.incarnation(), incarnation) << "block " << entry.block();
      // Each sample is used once, or twice if the first incarnation died with it. So the number of
      // steps is at least kOrders and at most the number of started steps.
      EXPECT_GE(entry.applied(), kOrders) << "block " << entry.block();
      EXPECT_LE(entry.applied(), accounting.begun()) << "block " << entry.block();
    }
    EXPECT_GT(last_step, 0);
    EXPECT_LE(status.max_version(), accounting.begun());
    EXPECT_GE(status.min_version(), kOrders);
    // The ledger counts each applied gradient once, and there are no repeated pushes.
    EXPECT_EQ(status.verdicts().duplicates(), 0u);
  }
}

class ReplicaKillTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ReplicaKillTest, TheReplicaRestartsAndFinishesTheJobAfterAMemberDies) {
  KillOneAndGoOn("ASYNC", RandomMoment(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReplicaKillTest, ::testing::Range<uint64_t>(1, 17));

TEST(ReplicaKillInSyncTest, TheReplicaRestartsAndFinishesTheJobAfterAMemberDies) {
  for (const uint64_t seed : {101, 102, 103}) KillOneAndGoOn("SYNC", RandomMoment(seed));
}

// The member dies after it computed its part of the gradient and before it pushes it. The other
// members' parts may be at the servers. The next incarnation must not wait for the missing part.
TEST(ReplicaKillInSyncTest, TheNextIncarnationDoesNotWaitForTheDeadMembersPart) {
  for (const int stage : {1, 2}) {
    ReplicaRig::Moment fatal;
    fatal.stage = stage;
    fatal.phase = MemberPhase::kComputed;
    fatal.order = 4;
    KillOneAndGoOn("SYNC", fatal);
  }
}

}  // namespace
}  // namespace torchps
