// Tests whole workers, each on a thread, on servers inside this process.

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/gpu.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/common/mutex.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Points of two classes, separated by the sign of the first coordinate. Samples from `poison` on
// are NaN.
class Points final : public Dataset {
 public:
  explicit Points(int64_t size, int64_t poison = std::numeric_limits<int64_t>::max())
      : size_(size), poison_(poison) {}

  int64_t size() const override { return size_; }
  DataShape shape() const override { return DataShape(); }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::empty({rows, 2}), torch::empty({rows}, torch::kInt64)};
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = indices[row];
      const bool right = index % 2 == 1;
      batch.input[row][0] = (right ? 1.0 : -1.0) + 0.01 * static_cast<double>(index % 7);
      batch.input[row][1] = 0.1 * static_cast<double>(index % 5);
      if (index >= poison_) batch.input[row][0] = std::numeric_limits<float>::quiet_NaN();
      batch.target[row] = right ? 1 : 0;
    }
    return batch;
  }

 private:
  const int64_t size_;
  const int64_t poison_;
};

// Wraps a dataset and calls `before_first` before the second read, which is the read of the job's
// first batch. (The first read is before the worker joins the job.)
class HeldBack final : public Dataset {
 public:
  HeldBack(std::shared_ptr<const Dataset> data, std::function<void()> before_first)
      : data_(std::move(data)), before_first_(std::move(before_first)) {}
  int64_t size() const override { return data_->size(); }
  DataShape shape() const override { return data_->shape(); }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    if (++asked_ == 2) before_first_();
    return data_->Get(indices);
  }

 private:
  const std::shared_ptr<const Dataset> data_;
  const std::function<void()> before_first_;
  mutable int asked_ = 0;
};

struct Net : torch::nn::Module {
  Net()
      : norm(register_module("norm", torch::nn::BatchNorm1d(2))),
        linear(register_module("linear", torch::nn::Linear(2, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    return linear->forward(norm->forward(input));
  }
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear linear;
};

// Calls two functions in its second training step, which is the first step that reports blocks
// early. `before` runs in the forward pass. `between` runs in the backward pass, when the second
// layer's gradients are final and the first layer's are not. The layers do not share a block of 16
// elements.
struct TwoLayers : torch::nn::Module {
  TwoLayers()
      : first(register_module("first", torch::nn::Linear(2, 16))),
        second(register_module("second", torch::nn::Linear(16, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor hidden = first->forward(input);
    if (hidden.requires_grad() && ++steps == 2) {
      before();
      hidden.register_hook([this](torch::Tensor gradient) {
        between();
        return gradient;
      });
    }
    return second->forward(hidden);
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
  std::function<void()> before;
  std::function<void()> between;
  int steps = 0;
};

// Records whether the layers computed in bfloat16.
struct Mlp : torch::nn::Module {
  Mlp()
      : first(register_module("first", torch::nn::Linear(2, 16))),
        second(register_module("second", torch::nn::Linear(16, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor output = second->forward(first->forward(input).relu());
    (is_training() ? trained_in_16_bits : evaluated_in_16_bits) =
        output.scalar_type() == torch::kBFloat16;
    return output;
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
  bool trained_in_16_bits = false;
  bool evaluated_in_16_bits = false;
};

constexpr char kJob[] = R"(
  workers: 2
  training { epochs: 3 batch_size: 8 balance: EQUAL global_batch: false }
  optimizer { sgd {} learning_rate: 0.5 }
  consistency { mode: ASYNC }
  wire { block_bytes: 64 }
)";

class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest()
      : cluster_(*InProcessCluster::Start(/*servers=*/2, &clock_)),
        servers_(cluster_->endpoints()) {}

  static JobSpec Job(const std::vector<std::string>& overrides) {
    JobSpec job = *ParseJobText(kJob, "the test's job");
    for (const std::string& assignment : overrides) {
      EXPECT_TRUE(ApplyOverride(&job, assignment).ok()) << assignment;
    }
    return *NormalizeJobSpec(job);
  }

  // Returns the options of a worker of this job on the CPU.
  WorkerOptions Options(const JobSpec& job) {
    WorkerOptions options;
    options.job = job;
    options.servers = servers_;
    options.clock = &clock_;
    options.stop = stop_.get();
    return options;
  }

  // Returns the data that ExpectDone() expects.
  static DataSource Data(int64_t poison = 1 << 20) {
    DataSource data;
    data.train = std::make_shared<Points>(96, poison);
    data.test = std::make_shared<Points>(40);
    return data;
  }

  struct Worker {
    absl::Status status;
    std::vector<std::string> lines;
  };

  // Runs `job.workers` workers concurrently, each with a separate module and dataset.
  std::vector<Worker> Run(const JobSpec& job, int64_t poison = 1 << 20) {
    std::vector<Worker> workers(job.workers());
    // All tasks are created before the first thread starts. The threads share torch's generator,
    // and a worker that joins the job seeds it.
    std::vector<Task> tasks;
    while (tasks.size() < workers.size()) {
      torch::manual_seed(1);
      DataSource data = Data(poison);
      if (hold_last_back_ != nullptr && tasks.size() + 1 == workers.size()) {
        data.train = std::make_shared<HeldBack>(data.train, hold_last_back_);
      }
      tasks.emplace_back(std::make_shared<Net>(), CrossEntropy(), data);
    }
    std::vector<std::thread> threads;
    for (Worker& worker : workers) {
      const Task& task = tasks[threads.size()];
      const torch::Device device = devices_.empty() ? torch::kCPU : devices_[threads.size()];
      threads.emplace_back([this, &job, &worker, &task, device] {
        at::set_num_threads(1);
        WorkerOptions options = Options(job);
        options.device = device;
        options.progress_interval = absl::ZeroDuration();
        options.print = [&worker](const std::string& line) { worker.lines.push_back(line); };
        if (stop_at_first_line_) {
          options.print = [this](const std::string&) { stop_->Stop("the user had enough"); };
        }
        worker.status = RunWorker(task, options);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return workers;
  }

  JobStatus Status() {
    const auto stub = Coordinator::NewStub(servers_[0].channel);
    grpc::ClientContext context;
    JobStatus status;
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    return status;
  }

  ServerStatus GetStatus(int server) {
    const auto stub = ParameterService::NewStub(servers_[server].channel);
    grpc::ClientContext context;
    ServerStatus status;
    EXPECT_TRUE(stub->GetServerStatus(&context, ServerStatusRequest(), &status).ok());
    return status;
  }

  // Checks that the job used and evaluated each epoch once, and that the model learned.
  void ExpectDone(const JobSpec& job) {
    const JobStatus status = Status();
    EXPECT_EQ(status.phase(), JobStatus::DONE);
    ASSERT_EQ(status.epoch_size(), job.training().epochs());
    for (const EpochAccounting& accounting : status.epoch()) {
      EXPECT_EQ(accounting.used(), 96);
      EXPECT_EQ(accounting.outstanding(), 0);
      EXPECT_TRUE(accounting.closed());
    }
    ASSERT_EQ(status.evaluation_size(), job.training().epochs());
    EXPECT_EQ(status.evaluation(status.evaluation_size() - 1).samples(), 40);
    EXPECT_GT(status.evaluation(status.evaluation_size() - 1).metric(0).value(), 0.9);
  }

  SteadyClock clock_;
  std::unique_ptr<StopLatch> stop_ = std::make_unique<StopLatch>();
  bool stop_at_first_line_ = false;
  // Called by the last worker between the first pull and the first batch. May be null.
  std::function<void()> hold_last_back_;
  // The device of each worker. If empty, all use the CPU.
  std::vector<torch::Device> devices_;
  std::unique_ptr<InProcessCluster> cluster_;
  // The servers, by default those of the cluster.
  std::vector<ServerEndpoint> servers_;
};

TEST_F(TrainingTest, TwoWorkersTrainAsynchronouslyToTheEnd) {
  const JobSpec job = Job({});
  for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
  ExpectDone(job);
  EXPECT_GE(GetStatus(1).min_version(), 36) << "96 samples in batches of 8, three times";
}

TEST_F(TrainingTest, TwoWorkersTrainInLockstepRounds) {
  const JobSpec job = Job({"consistency.mode=sync"});
  for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
  ExpectDone(job);
  EXPECT_EQ(GetStatus(0).min_version(), 18) << "6 rounds an epoch";
}

TEST_F(TrainingTest, RetrainsSamplesOfLatePushes) {
  for (const char* late : {"consistency.lag.policy=REJECT", "consistency.mode=SYNC"}) {
    SCOPED_TRACE(late);
    cluster_ = *InProcessCluster::Start(/*servers=*/2, &clock_);
    servers_ = cluster_->endpoints();
    const JobSpec job = Job({"consistency.staleness_bound=-1", "consistency.prefetch=false",
                             "consistency.lag.max_lag=2", "consistency.backup_workers=1",
                             "consistency.stop_stale=false", late});
    hold_last_back_ = [this] {
      // Three versions past the version that the worker may have pulled, which exceeds max_lag.
      const int64_t late = 3 + std::max(GetStatus(0).max_version(), GetStatus(1).max_version());
      EXPECT_TRUE(Eventually([this, late] {
        return GetStatus(0).min_version() >= late && GetStatus(1).min_version() >= late;
      }));
    };
    for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
    ExpectDone(job);
    const JobStatus status = Status();
    uint64_t samples = 0, lost = 0;
    for (const SlotAccounting& slot : status.slot()) {
      samples += slot.figures().samples();
      lost += slot.figures().lost_samples();
    }
    EXPECT_EQ(samples, 3u * 96) << "each sample of each epoch was applied once";
    EXPECT_GE(lost, 8u) << "the first batch of the held back worker";
    int64_t booked = 0;
    for (const EpochAccounting& accounting : status.epoch()) {
      booked += accounting.lost();
      EXPECT_EQ(accounting.reissued(), accounting.lost());
    }
    EXPECT_EQ(booked, static_cast<int64_t>(lost));
  }
}

class TrainingOnAGpuTest : public TrainingTest {
 protected:
  void SetUp() override { RequireGpu(); }
};

TEST_F(TrainingOnAGpuTest, TwoWorkersShareOneGpu) {
  devices_ = {torch::kCUDA, torch::kCUDA};
  for (const std::string mode : {"async", "sync"}) {
    cluster_ = *InProcessCluster::Start(/*servers=*/2, &clock_);
    servers_ = cluster_->endpoints();
    const JobSpec job = Job({"consistency.mode=" + mode});
    for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
    ExpectDone(job);
  }
}

TEST_F(TrainingOnAGpuTest, GpuAndCpuWorkersTrainTheSameJob) {
  devices_ = {torch::kCUDA, torch::kCPU};
  const JobSpec job = Job({"consistency.mode=sync", "wire.push.kind=BFLOAT16"});
  for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
  ExpectDone(job);
}

TEST_F(TrainingOnAGpuTest, ANonFiniteGradientIsNotPushed) {
  devices_ = {torch::kCUDA};
  const std::vector<Worker> workers = Run(Job({"workers=1"}), /*poison=*/95);
  ASSERT_TRUE(workers[0].status.ok()) << workers[0].status;
  const StepFigures figures = Status().slot(0).figures();
  EXPECT_EQ(figures.skipped_nonfinite(), 3) << "one batch in each epoch";
  // These batches have no loss. The mean loss of an epoch covers the other samples.
  EXPECT_EQ(figures.samples_without_loss(), 3 * figures.samples() / 36);
}

TEST_F(TrainingTest, LearnsInBfloat16) {
  for (const std::string local : {"", "local.steps=3"}) {
    cluster_ = *InProcessCluster::Start(/*servers=*/2, &clock_);
    servers_ = cluster_->endpoints();
    std::vector<std::string> fields = {"workers=1", "training.precision=BFLOAT16"};
    if (!local.empty()) {
      fields.insert(fields.end(), {local, "local.inner.sgd.momentum=0",
                                   "local.inner.learning_rate=0.5", "optimizer.learning_rate=1"});
    }
    const JobSpec job = Job(fields);
    const auto module = std::make_shared<Mlp>();
    const absl::Status trained = RunWorker(Task(module, CrossEntropy(), Data()), Options(job));
    ASSERT_TRUE(trained.ok()) << trained;
    ExpectDone(job);
    EXPECT_TRUE(module->trained_in_16_bits);
    EXPECT_TRUE(module->evaluated_in_16_bits);
    EXPECT_EQ(module->first->weight.scalar_type(), torch::kFloat32);
  }
}

TEST_F(TrainingTest, TheCpuRefusesFloat16BeforeItJoins) {
  const std::vector<Worker> workers = Run(Job({"workers=1", "training.precision=FLOAT16"}));
  EXPECT_EQ(workers[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(workers[0].status.message(),
            "job field training.precision is FLOAT16, but device 'cpu' cannot train in it; "
            "expected FLOAT32 or BFLOAT16 for the CPU, or a GPU (--device=cuda)");
  EXPECT_EQ(Status().phase(), JobStatus::NO_JOB);
}

TEST_F(TrainingTest, SkipsStepsThatOverflowTheirScale) {
  const JobSpec job = Job({"workers=1", "training.nonfinite=STOP_JOB",
                           "training.quarantine_after=2", "training.epochs=1"});
  // The first five steps report an overflow, as steps of a learner with a loss scale do.
  const MakeCompute make = [](const Task& task, const Learner::Options& learning,
                              WorkerSlot* slot) -> absl::StatusOr<ComputeGradient> {
    const auto learner = std::make_shared<Learner>(task, slot->model(), learning);
    const auto steps = std::make_shared<int>(0);
    return ComputeGradient([learner, steps](const StepWork& step, Learner::Observer* observer) {
      absl::StatusOr<Learner::Gradient> gradient = learner->Compute(step, observer);
      if (gradient.ok() && ++*steps <= 5) {
        gradient->finite = Finite::kOverflow;
        gradient->overflows = 1;
      }
      return gradient;
    });
  };
  const absl::Status trained =
      RunWorker(Task(std::make_shared<Net>(), CrossEntropy(), Data()), Options(job), make);
  ASSERT_TRUE(trained.ok()) << trained;
  const StepFigures figures = Status().slot(0).figures();
  EXPECT_EQ(figures.overflows(), 5);
  EXPECT_EQ(figures.skipped_nonfinite(), 0);
  EXPECT_EQ(figures.pushes(), 7);
  EXPECT_EQ(std::max(GetStatus(0).max_version(), GetStatus(1).max_version()), 7);
}

TEST_F(TrainingOnAGpuTest, LearnsInEachPrecision) {
  devices_ = {torch::kCUDA, torch::kCUDA};
  for (const std::string precision : {"TF32", "BFLOAT16", "FLOAT16"}) {
    SCOPED_TRACE(precision);
    cluster_ = *InProcessCluster::Start(/*servers=*/2, &clock_);
    servers_ = cluster_->endpoints();
    const JobSpec job = Job({"training.precision=" + precision});
    for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
    const JobStatus status = Status();
    EXPECT_EQ(status.phase(), JobStatus::DONE);
    ASSERT_EQ(status.evaluation_size(), job.training().epochs());
    EXPECT_GT(status.evaluation(status.evaluation_size() - 1).metric(0).value(), 0.9);
  }
}

TEST_F(TrainingTest, AccumulationPushesLessOften) {
  const JobSpec job = Job({"training.accumulate=3", "workers=1"});
  for (const Worker& worker : Run(job)) EXPECT_TRUE(worker.status.ok()) << worker.status;
  ExpectDone(job);
  EXPECT_EQ(GetStatus(0).max_version(), 12);
}

TEST_F(TrainingTest, ReportsProgressInMachineReadableLines) {
  const std::vector<Worker> workers = Run(Job({"workers=1", "training.epochs=1"}));
  ASSERT_TRUE(workers[0].status.ok()) << workers[0].status;
  EXPECT_THAT(workers[0].lines,
              Contains(HasSubstr("torchps_worker progress slot=0 epoch=1 step=12 loss=")));
  EXPECT_THAT(workers[0].lines,
              Contains(HasSubstr("torchps_worker evaluation slot=0 epoch=1 loss=")));
  EXPECT_EQ(workers[0].lines.back(), "torchps_worker done slot=0 pushes=12");
}

TEST_F(TrainingTest, ANonFiniteGradientIsNotPushed) {
  const std::vector<Worker> workers = Run(Job({"workers=1"}), /*poison=*/95);
  ASSERT_TRUE(workers[0].status.ok()) << workers[0].status;
  EXPECT_EQ(workers[0].lines.back(), "torchps_worker done slot=0 pushes=33");
  const StepFigures figures = Status().slot(0).figures();
  EXPECT_EQ(figures.skipped_nonfinite(), 3) << "one batch in each epoch";
  // These batches have no loss. The mean loss of an epoch covers the other samples.
  EXPECT_EQ(figures.samples_without_loss(), 3 * figures.samples() / 36);
}

TEST_F(TrainingTest, DismissesASlotAfterRepeatedNonFiniteGradients) {
  const std::vector<Worker> workers =
      Run(Job({"workers=1", "training.quarantine_after=10"}), /*poison=*/0);
  EXPECT_TRUE(absl::IsAborted(workers[0].status)) << workers[0].status;
  EXPECT_THAT(std::string(workers[0].status.message()),
              AllOf(HasSubstr("slot 0 is removed from the job"),
                    HasSubstr("gradients in a row were not finite")));
  EXPECT_EQ(GetStatus(0).max_version(), 0);
  const JobStatus status = Status();
  EXPECT_EQ(status.slot(0).state(), SlotAccounting::LEFT);
  EXPECT_EQ(status.epoch(0).outstanding(), 0) << "other workers receive its data";
}

TEST_F(TrainingTest, RejectPushAppliesNoPartOfTheGradient) {
  const std::vector<Worker> workers =
      Run(Job({"workers=1", "training.nonfinite=REJECT_PUSH"}), /*poison=*/95);
  ASSERT_TRUE(workers[0].status.ok()) << workers[0].status;
  EXPECT_EQ(workers[0].lines.back(), "torchps_worker done slot=0 pushes=33");
  EXPECT_EQ(GetStatus(0).verdicts().withheld(), 0);
  EXPECT_EQ(GetStatus(0).min_version(), 33);
  EXPECT_EQ(Status().slot(0).figures().skipped_nonfinite(), 3);
}

TEST_F(TrainingTest, UnderStopJobANonFiniteGradientStopsTheJob) {
  const std::vector<Worker> workers =
      Run(Job({"workers=1", "training.nonfinite=STOP_JOB"}), /*poison=*/95);
  EXPECT_TRUE(absl::IsAborted(workers[0].status)) << workers[0].status;
  const JobStatus status = Status();
  EXPECT_EQ(status.phase(), JobStatus::DONE);
  EXPECT_THAT(status.stopped(), HasSubstr("slot 0: 1 gradient was not finite"));
}

TEST_F(TrainingTest, PushesAndPullsRunDuringTheBackwardPass) {
  const JobSpec job = Job({"workers=1", "training.epochs=1", "consistency.staleness_bound=1",
                           "consistency.prefetch=true"});
  const auto moved = [this] {
    const ServerStatus a = GetStatus(0), b = GetStatus(1);
    return std::make_pair(a.bytes_in() + b.bytes_in(), a.bytes_out() + b.bytes_out());
  };
  const auto module = std::make_shared<TwoLayers>();
  std::pair<uint64_t, uint64_t> before;
  bool pushed = false;
  bool pulled = false;
  module->before = [&] {
    // Waits until the servers have applied the first step's push.
    EXPECT_TRUE(
        Eventually([&] { return GetStatus(0).min_version() + GetStatus(1).min_version() == 2; }));
    before = moved();
  };
  module->between = [&] {
    pushed = Eventually([&] { return moved().first > before.first; });
    pulled = Eventually([&] { return moved().second > before.second; });
  };
  const absl::Status trained = RunWorker(Task(module, CrossEntropy(), Data()), Options(job));
  EXPECT_TRUE(trained.ok()) << trained;
  EXPECT_TRUE(pushed) << "the second layer's gradient waited for the first one's";
  EXPECT_TRUE(pulled) << "the next values waited for the end of the step";
}

// While worker 0 is in a forward pass, worker 1 makes the values of worker 0 too old.
TEST_F(TrainingTest, RestartsAStepThatWouldBeLate) {
  const JobSpec job = Job({"consistency.staleness_bound=-1", "consistency.lag.policy=REJECT",
                           "consistency.lag.max_lag=2"});
  ASSERT_TRUE(job.consistency().stop_stale());
  const auto version = [this] {
    return std::min(GetStatus(0).max_version(), GetStatus(1).max_version());
  };
  std::atomic<bool> has_begun{false};
  std::vector<std::shared_ptr<TwoLayers>> modules;
  std::vector<std::thread> threads;
  std::vector<absl::Status> ended(2);
  for (size_t worker = 0; worker < ended.size(); ++worker) {
    const auto& module = modules.emplace_back(std::make_shared<TwoLayers>());
    module->between = [] {};
    module->before = [&, worker] {
      if (worker == 1) {
        EXPECT_TRUE(Eventually([&] { return has_begun.load(); }));
        return;
      }
      const int64_t before = version();
      has_begun = true;
      EXPECT_TRUE(Eventually([&] { return version() > before + 4; }));
    };
    threads.emplace_back([task = Task(module, CrossEntropy(), Data()), options = Options(job),
                          &status = ended[worker]] {
      at::set_num_threads(1);
      status = RunWorker(task, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : ended) EXPECT_TRUE(status.ok()) << status;
  ExpectDone(job);
  uint64_t stopped = 0;
  uint64_t begun = 0;
  const JobStatus status = Status();
  for (const SlotAccounting& slot : status.slot()) {
    stopped += slot.figures().stopped_steps();
    begun += slot.figures().stopped_steps() + slot.figures().pushes();
  }
  EXPECT_GE(stopped, 1u);
  EXPECT_EQ(begun, static_cast<uint64_t>(modules[0]->steps + modules[1]->steps));
  EXPECT_LE(GetStatus(0).lag().max(), 2);
}

TEST_F(TrainingTest, AHeldBackGradientIsStaleOnArrival) {
  // Number of steps of the fast worker during one delay of the slow worker.
  constexpr int kFastSteps = 8;
  constexpr int kBound = 4;
  // The slow worker is delayed only in the first 180 of the job's 240 steps. Near the end of the
  // job the fast worker waits for the slow one, so a delay would never end.
  constexpr int kHeldSteps = 180;
  for (const std::string prefetch : {"false", "true"}) {
    cluster_ = *InProcessCluster::Start(/*servers=*/2, &clock_);
    servers_ = cluster_->endpoints();
    const JobSpec job = Job({"consistency.staleness_bound=-1", "training.epochs=20",
                             "training.evaluate=false", "consistency.prefetch=" + prefetch});
    Mutex mutex;
    CondVar changed;
    int steps = 0;
    int held = 0;
    const auto train = [&](SlotId slot, SimulatedSlowdown::Options handicap) {
      at::set_num_threads(1);
      DataSource data;
      data.train = std::make_shared<Points>(96);
      Callbacks callbacks;
      callbacks.on_step = [&](const Callbacks::Step&) {
        MutexLock lock(&mutex);
        ++steps;
        changed.SignalAll();
      };
      WorkerOptions options = Options(job);
      options.slot = slot;
      options.handicap = std::move(handicap);
      const absl::Status trained =
          RunWorker(Task(std::make_shared<Net>(), CrossEntropy(), data, callbacks), options);
      EXPECT_TRUE(trained.ok()) << trained;
    };
    SimulatedSlowdown::Options slow;
    slow.slow = 1000;
    slow.wait = [&, waits = 0](absl::Duration) mutable {
      MutexLock lock(&mutex);
      // The forward pass is not delayed, because a delay there would make any gradient old.
      if (++waits % 2 == 1 || steps + kFastSteps > kHeldSteps) return;
      const int until = steps + kFastSteps;
      while (steps < until) changed.Wait(&mutex);
      ++held;
    };
    std::thread fast([&] { train(0, SimulatedSlowdown::Options()); });
    train(1, std::move(slow));
    fast.join();

    EXPECT_GE(held, 10);
    for (const int server : {0, 1}) {
      const ServerStatus status = GetStatus(server);
      uint64_t old = status.lag().count();
      for (int lag = 0; lag <= kBound && lag < status.lag().bucket_size(); ++lag) {
        old -= status.lag().bucket(lag);
      }
      EXPECT_GE(old, (held - 1) * status.blocks()) << "prefetch " << prefetch;
    }
  }
}

TEST_F(TrainingTest, TheTimesOfASlotDoNotExceedTheRunningTime) {
  const std::vector<Worker> workers = Run(Job({"workers=1", "consistency.prefetch=false"}));
  ASSERT_TRUE(workers[0].status.ok()) << workers[0].status;
  const StepFigures figures = Status().slot(0).figures();
  EXPECT_GT(figures.compute_seconds(), 0);
  EXPECT_GT(figures.push_seconds(), 0);
  EXPECT_GT(figures.pull_seconds(), 0);
  EXPECT_GT(figures.data_seconds(), 0);
  EXPECT_LE(figures.compute_seconds() + figures.push_seconds() + figures.pull_seconds() +
                figures.wait_seconds() + figures.data_seconds() + figures.other_seconds(),
            Status().running_seconds() + 1);
}

TEST_F(TrainingTest, AStopEndsWorkersAndFreesTheirSlots) {
  stop_at_first_line_ = true;
  for (const Worker& worker : Run(Job({"training.epochs=1000"}))) {
    EXPECT_TRUE(absl::IsCancelled(worker.status)) << worker.status;
  }
  const JobStatus status = Status();
  EXPECT_EQ(status.slot_size(), 2);
  for (const SlotAccounting& slot : status.slot()) EXPECT_EQ(slot.state(), SlotAccounting::LEFT);
}

TEST_F(TrainingTest, RefusesAnotherJobAndNamesTheDifferingField) {
  const std::vector<Worker> first = Run(Job({"workers=1", "training.epochs=1"}));
  ASSERT_TRUE(first[0].status.ok()) << first[0].status;
  const std::vector<Worker> second = Run(Job({"workers=1", "training.epochs=2"}));
  EXPECT_TRUE(absl::IsFailedPrecondition(second[0].status)) << second[0].status;
  EXPECT_THAT(std::string(second[0].status.message()), HasSubstr("training.epochs"));
}

}  // namespace
}  // namespace torchps
