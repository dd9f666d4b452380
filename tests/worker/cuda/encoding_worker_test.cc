// Compares a worker whose device encodes the gradients with a worker that encodes on the host. Both
// must learn the same bits.

#include <atomic>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/encoding_name.h"
#include "tests/worker/cuda/linked_training.h"
#include "tests/worker/device/fake_link.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Trains a worker on a device of host memory that encodes the pushes. Counts the encoders in
// `made`.
Learnt TrainEncoding(const JobSpec& job, int* made, bool is_odd = false, uint64_t seed = 1) {
  int scans = 0;
  const auto downs = std::make_shared<std::atomic<int64_t>>(0);
  const FakeLink::Options link{seed, /*own_thread=*/true, /*fail_at=*/-1,
                               /*least_copy_bytes=*/1, downs.get()};
  return Train(job, [=] { return std::make_unique<FakeLink>(link); }, downs, Feed(),
               {ScanByKernels(&scans), EncodeByKernels(made), is_odd});
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
    // Only encoded data is copied down.
    EXPECT_GT(learnt.downs, static_cast<int64_t>(learnt.losses.size()));
    EXPECT_THAT(learnt.said, ElementsAre("gradients are encoded as " +
                                         EncodingSpec::Kind_Name(GetParam()) + " on cpu"));
  }
}

// Layers that some steps do not reach keep the residual. So does a withheld block.
TEST_P(EncodingWorkerTest, MatchesWithAbsentElementsAndNonFiniteBlocks) {
  for (const std::string more : {"", "training { clip_norm: 0.1 nonfinite: REJECT_PUSH }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(GetParam()), more);
    const Learnt plain = Train(job, nullptr, std::make_shared<std::atomic<int64_t>>(0), Feed(),
                               {nullptr, nullptr, /*is_odd=*/true});
    int made = 0;
    ExpectTheSame(TrainEncoding(job, &made, /*is_odd=*/true, /*seed=*/2), plain);
    EXPECT_EQ(made, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, EncodingWorkerTest,
                         ::testing::Values(EncodingSpec::BFLOAT16, EncodingSpec::INT8,
                                           EncodingSpec::TOP_K),
                         EncodingName);

// Covers jobs that need floats on the host: servers that read shared memory, momentum in the
// worker, and local steps.
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
  const FakeLink::Options link{/*seed=*/1, /*own_thread=*/true, /*fail_at=*/-1,
                               /*least_copy_bytes=*/1, /*downs=*/nullptr};
  const Learnt learnt =
      Train(job, [=] { return std::make_unique<FakeLink>(link); },
            std::make_shared<std::atomic<int64_t>>(0), Feed(),
            {nullptr, [](const torch::Tensor&, const BlockMap&, const EncodingSpec&) {
               return absl::UnavailableError("no NVRTC is to be found");
             }});
  ExpectTheSame(learnt, Train(job));
  EXPECT_THAT(learnt.said, ElementsAre(AllOf(HasSubstr("encoded on the host, not by cpu"),
                                             HasSubstr("no NVRTC is to be found"))));
}

TEST(EncodingWorkerJobTest, ChecksBlocksOnTheDeviceUnderHostEncoding) {
  const JobSpec job = JobWith(EncodedAs(EncodingSpec::INT8));
  const FakeLink::Options link{/*seed=*/1, /*own_thread=*/true, /*fail_at=*/-1,
                               /*least_copy_bytes=*/1, /*downs=*/nullptr};
  int looks = 0;
  const Learnt learnt = Train(job, [=] { return std::make_unique<FakeLink>(link); },
                              std::make_shared<std::atomic<int64_t>>(0), Feed(),
                              {nullptr,
                               [](const torch::Tensor&, const BlockMap&, const EncodingSpec&) {
                                 return absl::UnavailableError("no memory for it");
                               },
                               /*is_odd=*/true, LookByKernels(&looks)});
  const Learnt plain = Train(job, nullptr, std::make_shared<std::atomic<int64_t>>(0), Feed(),
                             {nullptr, nullptr, /*is_odd=*/true});
  ExpectTheSame(learnt, plain);
  EXPECT_EQ(looks, 1);
}

TEST(EncodingWorkerJobTest, ALinkErrorEndsAnEncodingWorker) {
  for (const int64_t fail_at : {5, 50, 200}) {
    int made = 0;
    const FakeLink::Options link{/*seed=*/1, /*own_thread=*/true, fail_at,
                                 /*least_copy_bytes=*/1, /*downs=*/nullptr};
    const Learnt learnt =
        Train(JobWith(EncodedAs(EncodingSpec::BFLOAT16)),
              [=] { return std::make_unique<FakeLink>(link); },
              std::make_shared<std::atomic<int64_t>>(0), Feed(), {nullptr, EncodeByKernels(&made)});
    EXPECT_EQ(learnt.status.code(), absl::StatusCode::kInternal) << learnt.status;
    EXPECT_THAT(std::string(learnt.status.message()),
                HasSubstr("operation " + std::to_string(fail_at) + " has failed"));
  }
}

}  // namespace
}  // namespace torchps
