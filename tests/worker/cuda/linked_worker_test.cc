// A whole worker on the CPU whose copies go through a device link learns the same, to the last bit,
// as one that needs no copies. So does one whose batches go through a lift.

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/stop_latch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_file.h"
#include "job/job_spec.h"
#include "program/in_process_cluster.h"
#include "tests/testing/encoding_name.h"
#include "tests/worker/device/fake_link.h"
#include "tests/worker/feed/fake_lift.h"
#include "tests/worker/kernels/host_launcher.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "worker/cuda/device_encoder.h"
#include "worker/cuda/device_scan.h"
#include "worker/kernels/gradient_kernels.h"
#include "worker/run_worker.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Points final : public Dataset {
 public:
  int64_t size() const override { return 96; }
  DataShape shape() const override { return DataShape(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::empty({rows, 2}), torch::empty({rows}, torch::kInt64)};
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = indices[row];
      batch.input[row][0] = (index % 2 == 1 ? 1.0 : -1.0) + 0.01 * static_cast<double>(index % 7);
      batch.input[row][1] = 0.1 * static_cast<double>(index % 5);
      batch.target[row] = index % 2;
    }
    return batch;
  }
};

// With averaged elements, and with layers that share no block.
struct Net : torch::nn::Module {
  Net()
      : norm(register_module("norm", torch::nn::BatchNorm1d(2))),
        first(register_module("first", torch::nn::Linear(2, 32))),
        second(register_module("second", torch::nn::Linear(32, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    if (before_forward != nullptr) before_forward();
    ++forwards;
    torch::Tensor hidden = first->forward(norm->forward(input));
    // In every other pass a layer is left out, and one pass has a gradient that is not finite in
    // the last layer's block only.
    if (is_odd && forwards % 2 == 0) hidden = extra->forward(hidden);
    torch::Tensor output = second->forward(torch::relu(hidden));
    if (is_odd && forwards == 9) {
      output.register_hook([this](const torch::Tensor&) { spoil = true; });
    }
    return output;
  }
  // Before anything is registered in a module that is laid out.
  void MakeOdd() {
    is_odd = true;
    extra = register_module("extra", torch::nn::Linear(32, 32));
    second->bias.register_hook([this](const torch::Tensor& gradient) {
      return std::exchange(spoil, false) ? gradient * std::numeric_limits<float>::infinity()
                                         : gradient;
    });
  }
  std::function<void()> before_forward;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear first;
  torch::nn::Linear second;
  torch::nn::Linear extra = nullptr;
  bool is_odd = false;
  bool spoil = false;
  int64_t forwards = 0;
};

constexpr char kJob[] = R"(
  workers: 1
  training { epochs: 2 batch_size: 8 balance: EQUAL global_batch: false }
  optimizer { sgd { momentum: 0.9 } learning_rate: 0.1 }
  consistency { mode: ASYNC prefetch: false }
  wire { block_bytes: 64 shared_memory: false }
)";

JobSpec JobWith(const std::string& more) {
  JobSpec job = *ParseJobText(kJob, "the test's job");
  job.MergeFrom(*ParseJobText(more, "what differs"));
  return *NormalizeJobSpec(job);
}

struct Learnt {
  absl::Status status;
  std::vector<double> losses;  // by step
  std::vector<torch::Tensor> values;
  std::vector<std::string> said;
  // Copies down: all of them, and those that began before a backward pass had reached the first
  // layer.
  int64_t downs = 0;
  int64_t early_downs = 0;
};

using MakeLink = std::function<absl::StatusOr<std::unique_ptr<DeviceLink>>()>;
using MakeScan = std::function<absl::StatusOr<std::unique_ptr<DeviceScan>>(int64_t elements)>;
using MakeEncoder = decltype(WorkerOptions::make_encoder);

// What a worker's device has, and what its module is like.
struct Extras {
  MakeScan make_scan = nullptr;
  MakeEncoder make_encoder = nullptr;
  bool is_odd = false;
};

// Where a worker's batches come from. Without a lift they are there when they are made.
struct Feed {
  std::function<std::unique_ptr<BatchLift>(torch::Device device)> make_lift;
  int loader_threads = 0;
};

// A worker's way through a job on two servers of its own. `downs`: FakeLink::Options.
Learnt Train(const JobSpec& job, MakeLink make_link,
             const std::shared_ptr<std::atomic<int64_t>>& downs, const Feed& feed = {},
             const Extras& extras = {}) {
  at::set_num_threads(1);
  SteadyClock clock;
  StopLatch stop;
  const auto cluster = *InProcessCluster::Start(/*servers=*/2, &clock);
  torch::manual_seed(1);
  Learnt learnt;
  Callbacks callbacks;
  callbacks.on_step = [&](const Callbacks::Step& step) { learnt.losses.push_back(step.loss); };
  callbacks.on_end = [&](torch::nn::Module& module) {
    for (const torch::Tensor& value : module.parameters()) {
      learnt.values.push_back(value.detach().clone());
    }
    for (const torch::Tensor& value : module.buffers()) learnt.values.push_back(value.clone());
  };
  DataSource data;
  data.train = std::make_shared<Points>();
  const auto net = std::make_shared<Net>();
  if (extras.is_odd) net->MakeOdd();
  int64_t before_forward = 0;
  net->before_forward = [&] { before_forward = *downs; };
  net->norm->weight.register_hook(
      [&](const torch::Tensor&) { learnt.early_downs += *downs - before_forward; });
  const Task task(net, CrossEntropy(), data, callbacks);
  WorkerOptions options;
  options.job = job;
  options.servers = cluster->endpoints();
  options.make_link = std::move(make_link);
  options.make_lift = feed.make_lift;
  options.loader_threads = feed.loader_threads;
  options.make_scan = extras.make_scan;
  options.make_encoder = extras.make_encoder;
  Mutex mutex;
  options.log = [&](const std::string& line) {
    MutexLock lock(&mutex);
    learnt.said.push_back(line);
  };
  options.clock = &clock;
  options.stop = &stop;
  learnt.status = RunWorker(task, options);
  learnt.downs = *downs;
  return learnt;
}

// On the host, without copies.
Learnt Train(const JobSpec& job) {
  return Train(job, nullptr, std::make_shared<std::atomic<int64_t>>(0));
}

// Each block is worth a copy of its own.
Learnt TrainLinked(const JobSpec& job, uint64_t seed, int64_t fail_at = -1) {
  const auto downs = std::make_shared<std::atomic<int64_t>>(0);
  const FakeLink::Options options{seed, /*own_thread=*/true, fail_at, /*least_copy_bytes=*/1,
                                  downs.get()};
  return Train(
      job, [=] { return std::make_unique<FakeLink>(options); }, downs);
}

void ExpectTheSame(const Learnt& learnt, const Learnt& plain) {
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  ASSERT_TRUE(learnt.status.ok()) << learnt.status;
  EXPECT_EQ(learnt.losses, plain.losses);
  ASSERT_EQ(learnt.values.size(), plain.values.size());
  for (size_t i = 0; i < plain.values.size(); ++i) {
    EXPECT_TRUE(learnt.values[i].equal(plain.values[i])) << "tensor " << i;
  }
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
      // In each step some, but never all: the first layer's are left.
      EXPECT_GE(linked.early_downs, static_cast<int64_t>(linked.losses.size()));
      EXPECT_GT(linked.downs, linked.early_downs);
    }
  }
}

class LinkedWorkerTest : public ::testing::TestWithParam<EncodingSpec::Kind> {};

TEST_P(LinkedWorkerTest, LearnsTheSameInEachEncoding) {
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

TEST(LinkedWorkerJobTest, LearnsTheSameWhereTheWholeGradientIsNeeded) {
  ExpectTheSame(JobWith("training { clip_norm: 0.1 }"), Gradients::kByOneCopy);
}

MakeScan ScanByKernels(int* made) {
  return [made](int64_t elements) {
    ++*made;
    return std::make_unique<DeviceScan>(std::make_unique<GradientKernels>(MakeHostLauncher()),
                                        torch::kCPU, elements, [] { return nullptr; });
  };
}

MakeEncoder EncodeByKernels(int* made) {
  return [made](const torch::Tensor& gradients, const BlockMap& map, const EncodingSpec& encoding) {
    ++*made;
    return std::make_unique<DeviceEncoder>(std::make_unique<GradientKernels>(MakeHostLauncher()),
                                           gradients, map, encoding, [] { return nullptr; });
  };
}

// As on a GPU, whose kernels run here on the host, and take the "device's" memory as it is.
TEST(LinkedWorkerJobTest, LearnsTheSameWhereKernelsLookAtTheGradient) {
  for (const std::string more :
       {"training { clip_norm: 0.1 }", "training { clip_norm: 0.1 nonfinite: STOP_JOB }",
        "training { clip_norm: 0.1 } local { steps: 2 inner { sgd {} learning_rate: 0.1 } }"}) {
    SCOPED_TRACE(more);
    int scans = 0;
    const FakeLink::Options link{/*seed=*/1, /*own_thread=*/true, /*fail_at=*/-1,
                                 /*least_copy_bytes=*/1, /*downs=*/nullptr};
    const Learnt learnt =
        Train(JobWith(more), [=] { return std::make_unique<FakeLink>(link); },
              std::make_shared<std::atomic<int64_t>>(0), Feed(), {ScanByKernels(&scans)});
    ExpectTheSame(learnt, Train(JobWith(more)));
    EXPECT_EQ(scans, 1);
  }
}

TEST(LinkedWorkerJobTest, WithoutKernelsTheHostLooksAtTheGradientAndIsToldWhy) {
  const JobSpec job = JobWith("training { clip_norm: 0.1 }");
  const FakeLink::Options link{/*seed=*/1, /*own_thread=*/true, /*fail_at=*/-1,
                               /*least_copy_bytes=*/1, /*downs=*/nullptr};
  const Learnt learnt =
      Train(job, [=] { return std::make_unique<FakeLink>(link); },
            std::make_shared<std::atomic<int64_t>>(0), Feed(),
            {[](int64_t) { return absl::UnavailableError("no NVRTC is to be found"); }});
  ExpectTheSame(learnt, Train(job));
  EXPECT_THAT(learnt.said, ElementsAre(AllOf(HasSubstr("not found by the kernels"),
                                             HasSubstr("no NVRTC is to be found"))));
}

// A worker with that device, which encodes what it pushes. `made`: encoders.
Learnt TrainEncoding(const JobSpec& job, int* made, bool is_odd = false, uint64_t seed = 1) {
  static int scans = 0;
  const auto downs = std::make_shared<std::atomic<int64_t>>(0);
  const FakeLink::Options link{seed, /*own_thread=*/true, /*fail_at=*/-1,
                               /*least_copy_bytes=*/1, downs.get()};
  return Train(job, [=] { return std::make_unique<FakeLink>(link); }, downs, Feed(),
               {ScanByKernels(&scans), EncodeByKernels(made), is_odd});
}

std::string EncodedAs(EncodingSpec::Kind kind) {
  return "wire { block_bytes: 512 push { kind: " + EncodingSpec::Kind_Name(kind) +
         (kind == EncodingSpec::TOP_K ? " fraction: 0.25 } }" : " } }");
}

class EncodingWorkerTest : public ::testing::TestWithParam<EncodingSpec::Kind> {};

TEST_P(EncodingWorkerTest, WhatTheDeviceEncodesIsWhatTheHostWouldHavePushed) {
  for (const std::string more :
       {"", "consistency { mode: SYNC }", "training { accumulate: 3 }",
        "training { clip_norm: 0.1 }", "training { clip_norm: 0.1 nonfinite: STOP_JOB }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(GetParam()) + more);
    int made = 0;
    const Learnt learnt = TrainEncoding(job, &made);
    ExpectTheSame(learnt, Train(job));
    EXPECT_EQ(made, 1);
    // Nothing but what is encoded comes down.
    EXPECT_GT(learnt.downs, static_cast<int64_t>(learnt.losses.size()));
    EXPECT_THAT(learnt.said, ElementsAre());
  }
}

// A layer that some steps do not reach keeps its residual, and so does a block that is withheld.
TEST_P(EncodingWorkerTest, WithAbsentElementsAndABlockThatIsNotFiniteItIsTheSame) {
  for (const std::string more : {"", "training { clip_norm: 0.1 nonfinite: SKIP_STEP }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(GetParam()) + more);
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

// Servers here read floats in shared memory, a momentum in the worker changes them, and local steps
// end on the host.
TEST(LinkedWorkerJobTest, WhereTheHostNeedsTheFloatsTheDeviceEncodesNothing) {
  for (const std::string more :
       {"wire { shared_memory: true }", "optimizer { sgd { momentum_at: WORKER } }",
        "local { steps: 2 inner { sgd {} learning_rate: 0.1 } }",
        "wire { push { kind: FLOAT32 } }"}) {
    SCOPED_TRACE(more);
    const JobSpec job = JobWith(EncodedAs(EncodingSpec::INT8) + more);
    int made = 0;
    ExpectTheSame(TrainEncoding(job, &made), Train(job));
    EXPECT_EQ(made, 0);
  }
}

TEST(LinkedWorkerJobTest, WithoutKernelsTheHostEncodesAndIsToldWhy) {
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

TEST(LinkedWorkerJobTest, AnErrorOfTheLinkEndsAWorkerThatEncodes) {
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

// Of a pull of a fragment only that is taken over: the other values are the worker's own.
TEST(LinkedWorkerJobTest, LearnsTheSameInLocalSteps) {
  ExpectTheSame(JobWith("local { steps: 2 inner { sgd {} learning_rate: 0.1 } }"),
                Gradients::kByOneCopy);
  ExpectTheSame(JobWith("local { steps: 2 fragments: 2 inner { sgd {} learning_rate: 0.1 } }"),
                Gradients::kByOneCopy);
}

TEST(LinkedWorkerJobTest, LearnsTheSameInRounds) {
  ExpectTheSame(JobWith("consistency { mode: SYNC }"));
}

TEST(LinkedWorkerJobTest, LearnsTheSameFromValuesInSharedMemory) {
  ExpectTheSame(JobWith("wire { shared_memory: true }"));
}

// Which values a pull ahead brings is a matter of time, so only that it comes to its end.
TEST(LinkedWorkerJobTest, PullsAhead) {
  const Learnt linked = TrainLinked(JobWith("consistency { prefetch: true }"), /*seed=*/1);
  EXPECT_TRUE(linked.status.ok()) << linked.status;
  EXPECT_EQ(linked.losses.size(), 24u);
  EXPECT_LT(linked.losses.back(), linked.losses.front());
}

TEST(LinkedWorkerJobTest, WithoutALinkItSaysSoAndLearnsTheSame) {
  const auto none = [] { return absl::InternalError("the device gives no streams"); };
  const JobSpec job = JobWith("");
  const Learnt learnt = Train(job, none, std::make_shared<std::atomic<int64_t>>(0));
  ExpectTheSame(learnt, Train(job));
  EXPECT_THAT(learnt.said, ElementsAre(AllOf(HasSubstr("not while it computes"),
                                             HasSubstr("the device gives no streams"))));
}

TEST(LinkedWorkerJobTest, AnErrorOfTheLinkEndsTheWorkerWithItsSentence) {
  for (const int64_t fail_at : {0, 5, 50, 77, 200}) {
    const Learnt linked = TrainLinked(JobWith(""), /*seed=*/1, fail_at);
    EXPECT_EQ(linked.status.code(), absl::StatusCode::kInternal) << linked.status;
    EXPECT_THAT(std::string(linked.status.message()),
                HasSubstr("operation " + std::to_string(fail_at) + " has failed"));
  }
}

Learnt TrainLifted(const JobSpec& job, uint64_t seed, int loader_threads, FakeLift::Counts* counts,
                   int fail_at = -1) {
  Feed feed;
  feed.make_lift = [=](torch::Device) {
    return std::make_unique<FakeLift>(FakeLift::Options{seed, fail_at, counts});
  };
  feed.loader_threads = loader_threads;
  return Train(job, nullptr, std::make_shared<std::atomic<int64_t>>(0), feed);
}

class LiftedWorkerTest : public ::testing::TestWithParam<int> {};

TEST_P(LiftedWorkerTest, LearnsTheSame) {
  for (const std::string& more :
       {std::string(), std::string("training { accumulate: 3 }"),
        std::string("local { steps: 2 inner { sgd {} learning_rate: 0.1 } }")}) {
    const JobSpec job = JobWith(more);
    const Learnt plain = Train(job);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(more + " seed " + std::to_string(seed));
      FakeLift::Counts counts;
      ExpectTheSame(TrainLifted(job, seed, GetParam(), &counts), plain);
      // Of two epochs.
      EXPECT_EQ(counts.passes, 24);
      EXPECT_EQ(counts.arrived, 24);
      if (GetParam() == 0) {
        EXPECT_EQ(counts.ahead, 0);
      }
      EXPECT_LE(counts.most_rising, 2);
    }
  }
}

TEST_P(LiftedWorkerTest, AnErrorOfTheLiftEndsItInItsOwnStep) {
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
