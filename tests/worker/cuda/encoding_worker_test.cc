// Compares a worker whose device encodes the gradients with a worker that encodes on the host. Both
// must learn the same bits.

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "tests/worker/cuda/fake_device.h"
#include "tests/worker/cuda/linked_training.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Variant kOdd = {/*loader_threads=*/0, /*is_odd=*/true};

// Trains a worker whose device, simulated in host memory, encodes the pushes. Adds the number of
// encoders that the worker made to `made`.
Learnt TrainEncoding(const JobSpec& job, int* made, const Variant& variant = {},
                     uint64_t seed = 1) {
  FakeDevice device(FakeDevice::Link(seed));
  device.scan = absl::OkStatus();
  device.encoder = absl::OkStatus();
  Learnt learnt = Train(job, device, variant);
  *made += device.encoders();
  return learnt;
}

std::string EncodedAs(EncodingSpec::Kind kind) {
  return "training { epochs: 1 } wire { block_bytes: 512 push { kind: " +
         EncodingSpec::Kind_Name(kind) +
         (kind == EncodingSpec::TOP_K ? " fraction: 0.25 } }" : " } }");
}

class EncodingWorkerTest : public ::testing::TestWithParam<EncodingSpec::Kind> {};

TEST_P(EncodingWorkerTest, DeviceEncodingMatchesHostEncoding) {
  for (const std::string more :
       {"", "consistency { mode: SYNC }", "training { accumulate: 3 }",
        "training { clip_norm: 0.1 }", "training { clip_norm: 0.1 nonfinite: STOP_JOB }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(GetParam()), more);
    int made = 0;
    const Learnt learnt = TrainEncoding(job, &made);
    ExpectTheSame(learnt, Train(job));
    EXPECT_EQ(made, 1);
    // Each step makes several copies down, of encoded blocks.
    EXPECT_GT(learnt.downs, static_cast<int64_t>(learnt.losses.size()));
    EXPECT_THAT(learnt.said, ElementsAre("gradients are encoded as " +
                                         EncodingSpec::Kind_Name(GetParam()) + " on cpu"));
  }
}

// A layer that a step does not reach keeps its residual, and so does a withheld block.
TEST_P(EncodingWorkerTest, MatchesWithAbsentElementsAndNonFiniteBlocks) {
  for (const std::string more : {"", "training { clip_norm: 0.1 nonfinite: REJECT_PUSH }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(GetParam()), more);
    const Learnt plain = Train(job, kOdd);
    int made = 0;
    ExpectTheSame(TrainEncoding(job, &made, kOdd, /*seed=*/2), plain);
    EXPECT_EQ(made, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, EncodingWorkerTest,
                         ::testing::Values(EncodingSpec::BFLOAT16, EncodingSpec::INT8,
                                           EncodingSpec::TOP_K),
                         EncodingName);

// These jobs need float gradients on the host: for servers that read shared memory, for momentum in
// the worker, and for local steps.
TEST(EncodingWorkerJobTest, DoesNotEncodeIfTheHostNeedsFloats) {
  for (const std::string more :
       {"wire { shared_memory: true }", "optimizer { sgd { momentum_at: WORKER } }",
        "local { steps: 2 inner { sgd {} learning_rate: 0.1 } }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(EncodingSpec::INT8), more);
    int made = 0;
    const Learnt learnt = TrainEncoding(job, &made);
    ExpectTheSame(learnt, Train(job));
    EXPECT_EQ(made, 0);
    EXPECT_THAT(learnt.said, Each(Not(HasSubstr("are encoded"))));
  }
  int made = 0;
  ExpectTheSame(TrainEncoding(JobWith(""), &made), Train(JobWith("")));
  EXPECT_EQ(made, 0) << "float32 needs no encoding";
}

TEST(EncodingWorkerJobTest, EncodesOnTheHostWithoutKernels) {
  const JobSpec job = JobWith(EncodedAs(EncodingSpec::INT8));
  FakeDevice device(FakeDevice::Link(/*seed=*/1));
  device.encoder = absl::UnavailableError("no NVRTC is to be found");
  const Learnt learnt = Train(job, device);
  ExpectTheSame(learnt, Train(job));
  EXPECT_THAT(learnt.said, ElementsAre(AllOf(HasSubstr("encoded on the host, not by cpu"),
                                             HasSubstr("no NVRTC is to be found"))));
}

TEST(EncodingWorkerJobTest, WithHostEncodingTheDeviceStillChecksBlocks) {
  const JobSpec job = JobWith(EncodedAs(EncodingSpec::INT8));
  FakeDevice device(FakeDevice::Link(/*seed=*/1));
  device.encoder = absl::UnavailableError("no memory for it");
  device.finite_check = absl::OkStatus();
  ExpectTheSame(Train(job, device, kOdd), Train(job, kOdd));
  EXPECT_EQ(device.finite_checks(), 1);
}

TEST(EncodingWorkerJobTest, ALinkErrorEndsAnEncodingWorker) {
  for (const int64_t fail_at : {5, 50, 200}) {
    FakeDevice device(FakeDevice::Link(/*seed=*/1, fail_at));
    device.encoder = absl::OkStatus();
    const Learnt learnt = Train(JobWith(EncodedAs(EncodingSpec::BFLOAT16)), device);
    EXPECT_EQ(learnt.status.code(), absl::StatusCode::kInternal) << learnt.status;
    EXPECT_THAT(std::string(learnt.status.message()),
                HasSubstr("operation " + std::to_string(fail_at) + " has failed"));
  }
}

}  // namespace
}  // namespace torchps
