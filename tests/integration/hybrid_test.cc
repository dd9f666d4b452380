// Compares two replicas, each divided over two processes, with two undivided workers, in mode SYNC.
// Results may differ only by rounding, also if the processes exchange tensors over TLS.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/certificates.h"
#include "tests/testing/replica_rig.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/stages/stages.h"

namespace torchps::hybrid_test {

constexpr uint64_t kSeed = 9;
constexpr int64_t kInputs = 48;
constexpr int kSamples = 192;
constexpr int kEpochs = 3;
constexpr int kReplicas = 2;
constexpr double kTolerance = 1e-5;

// Returns a network of 48, 64 and 10 units in two stages, with the same parameters in each call.
std::vector<ModelStage> TwoLayers() {
  torch::manual_seed(kSeed);
  using torch::nn::Linear;
  return {torch::nn::Sequential(Linear(kInputs, 64), torch::nn::Tanh()),
          torch::nn::Sequential(Linear(64, 10))};
}

ReplicaRig::Options Rig() {
  ReplicaRig::Options options;
  JobSpec job = *ParseJobText(
      "workers: 2 training { epochs: 3 batch_size: 12 balance: EQUAL global_batch: false "
      "evaluate: false } optimizer { sgd { momentum: 0.9 } learning_rate: 0.05 } "
      "consistency { mode: SYNC } wire { block_bytes: 4096 }",
      "the test's job");
  job.set_seed(kSeed);
  options.job = *NormalizeJobSpec(job);
  options.make = TwoLayers;
  torch::manual_seed(kSeed + 1);
  const torch::Tensor inputs = torch::randn({kSamples, kInputs});
  options.data.train =
      std::make_shared<TensorDataset>(inputs, inputs.matmul(torch::randn({kInputs, 10})).argmax(1));
  options.servers = 2;
  return options;
}

torch::Tensor FirstValues() {
  std::vector<torch::Tensor> values;
  for (const ModelStage& stage : TwoLayers()) {
    for (const torch::Tensor& parameter : stage.module()->parameters()) {
      values.push_back(parameter.detach().flatten());
    }
  }
  return torch::cat(values);
}

double Difference(const torch::Tensor& ours, const torch::Tensor& theirs) {
  return ((ours - theirs).norm() / theirs.norm()).item<double>();
}

// Returns the values that two undivided workers learn.
torch::Tensor LearntUndivided() {
  ReplicaRig rig(Rig());
  const absl::Status trained = rig.RunUndivided(kReplicas);
  EXPECT_TRUE(trained.ok()) << trained;
  torch::Tensor learnt = rig.ReadServers();
  EXPECT_GT(Difference(FirstValues(), learnt), 1e-2)
      << "training moved the parameters too little for a meaningful comparison";
  return learnt;
}

// Checks that the job used each sample of each epoch once and that each replica computed half of
// the samples.
void ExpectShared(const JobStatus& job) {
  ASSERT_EQ(job.slot_size(), kReplicas);
  for (const SlotAccounting& slot : job.slot()) {
    EXPECT_EQ(slot.member_size(), 2);
    EXPECT_EQ(slot.figures().samples(), static_cast<uint64_t>(kEpochs * kSamples / kReplicas));
  }
  ASSERT_EQ(job.epoch_size(), kEpochs);
  for (const EpochAccounting& accounting : job.epoch()) EXPECT_EQ(accounting.used(), kSamples);
}

void ExpectLearnsTheSame(const ReplicaRig::Options& options, const std::string& what) {
  ReplicaRig rig(options);
  for (const std::vector<absl::Status>& replica : rig.Run(kReplicas)) {
    for (const absl::Status& member : replica) EXPECT_TRUE(member.ok()) << member;
  }
  ExpectShared(rig.Job());
  const double difference = Difference(rig.ReadServers(), LearntUndivided());
  std::cout << what << ": relative difference of all values " << difference << " (seed " << kSeed
            << ")" << std::endl;
  EXPECT_LE(difference, kTolerance);
}

TEST(HybridTest, TwoReplicasOfTwoStagesMatchTwoWorkers) {
  ExpectLearnsTheSame(Rig(), "2 replicas of 2 stages, SYNC");
}

TEST(HybridTest, ReplicasOverTlsMatchTwoWorkers) {
  const TestCertificates certificates;
  ReplicaRig::Options options = Rig();
  options.certificates = certificates.Open(Role::kWorker);
  ExpectLearnsTheSame(options, "2 replicas of 2 stages, SYNC, by TLS");
}

}  // namespace torchps::hybrid_test
