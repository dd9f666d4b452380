// Tests that a CPU worker that copies through a device link ends with bit-identical parameters to
// one that makes no copies. Also tests this for batches that go through an uploader.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "tests/worker/cuda/fake_device.h"
#include "tests/worker/cuda/linked_training.h"
#include "tests/worker/feed/fake_lift.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Learnt TrainLinked(const JobSpec& job, uint64_t seed, int64_t fail_at = -1) {
  return Train(job, FakeDevice(FakeDevice::Link(seed, fail_at)));
}

enum class Gradients { kBlockByBlock, kByOneCopy };

void ExpectTheSame(const JobSpec& job, Gradients come = Gradients::kBlockByBlock) {
  const Learnt plain = Train(job);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Learnt linked = TrainLinked(job, seed);
    ExpectTheSame(linked, plain);
    if (come == Gradients::kByOneCopy) {
      EXPECT_EQ(linked.downs, 0);
    } else {
      // Each step copies some blocks during the backward pass. The first layer's blocks are copied
      // later.
      EXPECT_GE(linked.early_downs, static_cast<int64_t>(linked.losses.size()));
      EXPECT_GT(linked.downs, linked.early_downs);
    }
  }
}

class LinkedWorkerTest : public ::testing::TestWithParam<EncodingSpec::Kind> {};

TEST_P(LinkedWorkerTest, ALinkedWorkerLearnsTheSameInEachEncoding) {
  ExpectTheSame(JobWith("wire { push { kind: " + EncodingSpec::Kind_Name(GetParam()) +
                        (GetParam() == EncodingSpec::TOP_K ? " fraction: 0.25 } }" : " } }")));
}

INSTANTIATE_TEST_SUITE_P(Encodings, LinkedWorkerTest,
                         ::testing::Values(EncodingSpec::FLOAT32, EncodingSpec::BFLOAT16,
                                           EncodingSpec::INT8, EncodingSpec::TOP_K),
                         EncodingName);

TEST(LinkedWorkerJobTest, LearnsTheSameInSeveralPasses) {
  ExpectTheSame(JobWith("training { accumulate: 3 }"));
}

TEST(LinkedWorkerJobTest, LearnsTheSameWithWholeGradients) {
  ExpectTheSame(JobWith("training { clip_norm: 0.1 }"), Gradients::kByOneCopy);
}

// The GPU's kernels scan the gradient. Here they run on the host and access the "device" memory
// directly.
TEST(LinkedWorkerJobTest, LearnsTheSameIfKernelsScanTheGradient) {
  for (const std::string more :
       {"training { clip_norm: 0.1 }", "training { clip_norm: 0.1 nonfinite: STOP_JOB }",
        "training { clip_norm: 0.1 } local { steps: 2 inner { sgd {} learning_rate: 0.1 } }"}) {
    SCOPED_TRACE(more);
    FakeDevice device(FakeDevice::Link(/*seed=*/1));
    device.scan = absl::OkStatus();
    ExpectTheSame(Train(JobWith(more), device), Train(JobWith(more)));
    EXPECT_EQ(device.scans(), 1);
  }
}

TEST(LinkedWorkerJobTest, ScansOnTheHostWithoutKernels) {
  const JobSpec job = JobWith("training { clip_norm: 0.1 }");
  FakeDevice device(FakeDevice::Link(/*seed=*/1));
  device.scan = absl::UnavailableError("no NVRTC is to be found");
  const Learnt learnt = Train(job, device);
  ExpectTheSame(learnt, Train(job));
  EXPECT_THAT(learnt.said, ElementsAre(AllOf(HasSubstr("not computed by torchps's GPU kernels"),
                                             HasSubstr("no NVRTC is to be found"))));
}

// In some steps a layer gets no gradient. In one step a block is not finite, so it is withheld.
TEST(LinkedWorkerJobTest, LearnsTheSameIfTheDeviceChecksBlocks) {
  for (const std::string more :
       {"", "wire { shared_memory: true }", "optimizer { sgd { momentum_at: WORKER } }",
        "training { accumulate: 3 }", "consistency { mode: SYNC }"}) {
    SCOPED_TRACE(more);
    // Uses few blocks because a kernel on the host runs 256 threads that wait for each other.
    const JobSpec job = JobWith("training { epochs: 1 } wire { block_bytes: 512 }", more);
    const Variant odd = {/*loader_threads=*/0, /*is_odd=*/true};
    const Learnt plain = Train(job, odd);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      FakeDevice device(FakeDevice::Link(seed));
      device.finite_check = absl::OkStatus();
      const Learnt learnt = Train(job, device, odd);
      ExpectTheSame(learnt, plain);
      EXPECT_EQ(device.finite_checks(), 1);
      EXPECT_THAT(learnt.said, ElementsAre());
    }
  }
}

TEST(LinkedWorkerJobTest, ChecksBlocksOnTheHostWithoutKernels) {
  FakeDevice device(FakeDevice::Link(/*seed=*/1));
  device.finite_check = absl::UnavailableError("no NVRTC is to be found");
  const Learnt learnt = Train(JobWith(""), device);
  ExpectTheSame(learnt, Train(JobWith("")));
  EXPECT_THAT(learnt.said,
              ElementsAre(AllOf(HasSubstr("checks gradients for values that are not finite"),
                                HasSubstr("no NVRTC is to be found"))));
}

TEST(LinkedWorkerJobTest, LearnsTheSameInLocalSteps) {
  ExpectTheSame(JobWith("local { steps: 2 inner { sgd {} learning_rate: 0.1 } }"),
                Gradients::kByOneCopy);
}

TEST(LinkedWorkerJobTest, LearnsTheSameInRounds) {
  ExpectTheSame(JobWith("consistency { mode: SYNC }"));
}

TEST(LinkedWorkerJobTest, LearnsTheSameFromValuesInSharedMemory) {
  ExpectTheSame(JobWith("wire { shared_memory: true }"));
}

// The values of a prefetched pull depend on timing, so this only checks that the job ends.
TEST(LinkedWorkerJobTest, FinishesWithPrefetchedPulls) {
  const Learnt linked = TrainLinked(JobWith("consistency { prefetch: true }"), /*seed=*/1);
  EXPECT_TRUE(linked.status.ok()) << linked.status;
  EXPECT_EQ(linked.losses.size(), 24u);
  EXPECT_LT(linked.losses.back(), linked.losses.front());
}

TEST(LinkedWorkerJobTest, LearnsTheSameWithoutALink) {
  FakeDevice device;
  device.link = absl::InternalError("the device gives no streams");
  const JobSpec job = JobWith("");
  const Learnt learnt = Train(job, device);
  ExpectTheSame(learnt, Train(job));
  EXPECT_THAT(learnt.said, ElementsAre(AllOf(HasSubstr("not while it computes"),
                                             HasSubstr("the device gives no streams"))));
}

TEST(LinkedWorkerJobTest, ALinkErrorEndsTheWorker) {
  for (const int64_t fail_at : {0, 5, 50, 77, 200}) {
    const Learnt linked = TrainLinked(JobWith(""), /*seed=*/1, fail_at);
    EXPECT_EQ(linked.status.code(), absl::StatusCode::kInternal) << linked.status;
    EXPECT_THAT(std::string(linked.status.message()),
                HasSubstr("operation " + std::to_string(fail_at) + " has failed"));
  }
}

Learnt TrainLifted(const JobSpec& job, uint64_t seed, int loader_threads, FakeLift::Counts* counts,
                   int fail_at = -1) {
  FakeDevice device;
  device.lift = FakeLift::Options{seed, fail_at, counts};
  return Train(job, device, {loader_threads});
}

class LiftedWorkerTest : public ::testing::TestWithParam<int> {};

TEST_P(LiftedWorkerTest, WithAnUploaderAWorkerLearnsTheSame) {
  for (const std::string& more :
       {std::string(), std::string("training { accumulate: 3 }"),
        std::string("local { steps: 2 inner { sgd {} learning_rate: 0.1 } }")}) {
    const JobSpec job = JobWith(more);
    const Learnt plain = Train(job);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(more + " seed " + std::to_string(seed));
      FakeLift::Counts counts;
      ExpectTheSame(TrainLifted(job, seed, GetParam(), &counts), plain);
      // The job's two epochs have 24 passes.
      EXPECT_EQ(counts.passes, 24);
      EXPECT_EQ(counts.arrived, 24);
      if (GetParam() == 0) {
        EXPECT_EQ(counts.ahead, 0);
      }
      EXPECT_LE(counts.max_rising, 2);
    }
  }
}

TEST_P(LiftedWorkerTest, AnUploadErrorEndsTheFailingStep) {
  FakeLift::Counts counts;
  const Learnt lifted = TrainLifted(JobWith(""), /*seed=*/1, GetParam(), &counts, /*fail_at=*/5);
  EXPECT_EQ(lifted.status.code(), absl::StatusCode::kInternal) << lifted.status;
  EXPECT_THAT(std::string(lifted.status.message()),
              AllOf(HasSubstr("a training step"), HasSubstr("copy 5 has failed")));
  EXPECT_EQ(lifted.losses.size(), 5u);
}

INSTANTIATE_TEST_SUITE_P(LoaderThreads, LiftedWorkerTest, ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace torchps
