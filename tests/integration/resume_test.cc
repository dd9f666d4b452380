// Compares a job resumed with other settings, and a job started from a file, with torch's training
// loop. Workers and servers run in this process. Results may differ only by rounding.

#include <stdlib.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/common/mutex.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/storage/file_system.h"
#include "torchps/worker/loop/lease_cursor.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/state_file.h"

namespace torchps::resume_test {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 96;
constexpr int kBatch = 8;
constexpr double kTolerance = 1e-5;

// Points on a plane that misses the origin.
class Plane final : public Dataset {
 public:
  int64_t size() const override { return kSamples; }
  DataShape shape() const override { return {}; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const auto rows = static_cast<int64_t>(indices.size());
    Batch batch{torch::empty({rows, 4}), torch::empty({rows, 1})};
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0.3;
      for (int64_t i = 0; i < 4; ++i) {
        const double x = static_cast<double>((indices[row] * (2 * i + 3)) % 17) / 17.0;
        batch.input[row][i] = x;
        sum += x * static_cast<double>(i - 1);
      }
      batch.target[row][0] = sum;
    }
    return batch;
  }
};

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(4, 8))),
        last(register_module("last", torch::nn::Linear(8, 1))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    return last->forward(torch::relu(first->forward(input)));
  }
  torch::nn::Linear first, last;
};

std::shared_ptr<Net> NewNet() {
  torch::manual_seed(4);
  return std::make_shared<Net>();
}

// Trains `net` in torch's loop for epochs `first_epoch` to `last_epoch`, with the job's sample
// order.
void TrainAlone(Net& net, torch::optim::Optimizer& optimizer, int first_epoch, int last_epoch) {
  EpochPositions positions(/*seed=*/1, kSamples);
  const Plane data;
  for (int epoch = first_epoch; epoch <= last_epoch; ++epoch) {
    for (int64_t begin = 0; begin < kSamples; begin += kBatch) {
      const Batch batch = *data.Get(positions.Samples(epoch, begin, begin + kBatch));
      optimizer.zero_grad();
      torch::mse_loss(net.forward(batch.input), batch.target).backward();
      optimizer.step();
    }
  }
}

double MostDifferent(Net& a, Net& b) {
  double most = 0;
  const auto theirs = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    most = std::max(most, (item.value() - theirs[item.key()]).abs().max().item<double>());
  }
  return most;
}

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    std::string name = absl::StrCat(getenv("TEST_TMPDIR"), "/run.XXXXXX");
    dir_ = mkdtemp(name.data());
    at::set_num_threads(1);
  }

  // Returns the job with these fields set: "path=value", separated by spaces.
  static JobSpec Job(const std::string& fields) {
    JobSpec job;
    for (const absl::string_view field :
         absl::StrSplit(absl::StrCat("optimizer.sgd.momentum=0.9 training.evaluate=false ",
                                     "consistency.mode=SYNC training.batch_size=", kBatch,
                                     " optimizer.learning_rate=0.05 ", fields),
                        ' ', absl::SkipEmpty())) {
      const absl::Status set = ApplyOverride(&job, field);
      EXPECT_TRUE(set.ok()) << set;
    }
    return *NormalizeJobSpec(job);
  }

  // Runs the job once in the directory. `net` belongs to the first worker.
  absl::Status Run(const std::string& fields, bool resume, const std::shared_ptr<Net>& net) {
    auto cluster = InProcessCluster::Start(/*servers=*/2, &clock_, dir_, resume);
    if (!cluster.ok()) return cluster.status();
    const JobSpec job = Job(fields);
    std::vector<std::thread> others;
    for (int i = 1; i < job.workers(); ++i) {
      others.emplace_back([&, other = NewNet()] {
        at::set_num_threads(1);
        EXPECT_EQ(Work(job, (*cluster)->endpoints(), other), absl::OkStatus());
      });
    }
    const absl::Status trained = Work(job, (*cluster)->endpoints(), net);
    for (std::thread& other : others) other.join();
    Look(**cluster);
    const absl::Status kept = (*cluster)->server(0).TakeLastCheckpoint(absl::Minutes(1));
    EXPECT_TRUE(kept.ok()) << kept;
    return trained;
  }

  absl::Status Work(const JobSpec& job, const std::vector<ServerEndpoint>& servers,
                    const std::shared_ptr<Net>& net) {
    DataSource data;
    data.train = std::make_shared<Plane>();
    StopLatch stop;
    WorkerOptions options;
    options.job = job;
    options.servers = servers;
    options.clock = &clock_;
    options.stop = &stop;
    options.log = [this](const std::string& line) {
      MutexLock lock(&mutex_);
      absl::StrAppend(&log_, line, "\n");
    };
    return RunWorker(Task(net, MeanSquaredError(), data), options);
  }

  // Records the checkpoints from which the last run began, as both servers and then the coordinator
  // report them.
  void Look(InProcessCluster& cluster) {
    begun_from_.clear();
    for (int server = 0; server < 2; ++server) {
      grpc::ClientContext context;
      ServerStatus status;
      const auto stub = ParameterService::NewStub(cluster.server(server).InProcessChannel());
      EXPECT_TRUE(stub->GetServerStatus(&context, ServerStatusRequest(), &status).ok());
      begun_from_.push_back(status.durability().restored_checkpoint());
    }
    grpc::ClientContext context;
    JobStatus status;
    const auto stub = Coordinator::NewStub(cluster.server(0).InProcessChannel());
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    begun_from_.push_back(status.resumed_checkpoint());
  }

  // Returns the path of a server's shard.
  std::string GetShard(uint64_t checkpoint, int server) {
    return CheckpointDirectory(nullptr, dir_).ShardPath(checkpoint, server, 2);
  }

  // Returns the model that the last run wrote.
  std::shared_ptr<Net> Left() {
    auto net = std::make_shared<Net>();
    const absl::Status loaded = LoadState(*net, absl::StrCat(dir_, "/model.safetensors"));
    EXPECT_TRUE(loaded.ok()) << loaded;
    return net;
  }

  const SteadyClock clock_;
  std::string dir_;
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> begun_from_;
};

TEST_F(ResumeTest, AResumeWithMoreEpochsMatchesTorch) {
  ASSERT_EQ(Run("training.epochs=2", false, NewNet()), absl::OkStatus());
  const std::shared_ptr<Net> alone = NewNet();
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  TrainAlone(*alone, optimizer, 1, 2);
  EXPECT_LT(MostDifferent(*alone, *Left()), kTolerance);

  ASSERT_EQ(Run("training.epochs=4 optimizer.learning_rate=0.005", true, NewNet()),
            absl::OkStatus());
  static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(0.005);
  TrainAlone(*alone, optimizer, 3, 4);
  EXPECT_LT(MostDifferent(*alone, *Left()), kTolerance);
}

TEST_F(ResumeTest, TwoWorkersResumeAJobOfThreeAndMatchAnUndisturbedJob) {
  // The restored servers still know the third slot. They wait until that slot's lease ends.
  const std::string schedule =
      "membership.lease_seconds=1 optimizer.schedule.shape=COSINE "
      "optimizer.schedule.total_steps=48 training.epochs=4 ";
  ASSERT_EQ(Run(schedule + "workers=3 training.max_pushes=54", false, NewNet()), absl::OkStatus());
  ASSERT_EQ(Run(schedule + "workers=2", true, NewNet()), absl::OkStatus());
  const std::shared_ptr<Net> undisturbed = Left();

  dir_ += ".undisturbed";
  ASSERT_EQ(Run(schedule + "workers=3", false, NewNet()), absl::OkStatus());
  EXPECT_LT(MostDifferent(*undisturbed, *Left()), kTolerance);
}

TEST_F(ResumeTest, AResumeWithAForbiddenChangeIsRefusedAndTheJobCanStillResume) {
  ASSERT_EQ(Run("training.epochs=2", false, NewNet()), absl::OkStatus());
  const absl::Status other = Run("training.epochs=4 optimizer.adam.beta1=0.9", true, NewNet());
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("that optimizer's state"));
  const absl::Status fewer = Run("training.epochs=1", true, NewNet());
  EXPECT_THAT(std::string(fewer.message()), HasSubstr("expected at least 2"));
  EXPECT_EQ(Run("training.epochs=3", true, NewNet()), absl::OkStatus());
}

TEST_F(ResumeTest, ADamagedShardMakesAllServersResumeFromTheCheckpointBefore) {
  // Writes a checkpoint of the beginning, and one or two of the end.
  ASSERT_EQ(Run("training.epochs=2", false, NewNet()), absl::OkStatus());
  const uint64_t newest = *CheckpointDirectory(MakePosixFileSystem().get(), dir_).HighestNumber();
  ASSERT_GE(newest, 2u);
  {
    std::fstream shard(GetShard(newest, 1), std::ios::in | std::ios::out | std::ios::binary);
    shard.seekg(-1, std::ios::end);
    const char last = static_cast<char>(shard.get());
    shard.seekp(-1, std::ios::end);
    shard.put(static_cast<char>(last ^ 4));
  }
  ASSERT_EQ(Run("training.epochs=2", true, NewNet()), absl::OkStatus());
  EXPECT_THAT(begun_from_, Each(newest - 1)) << "both servers and the coordinator";
  const std::shared_ptr<Net> alone = NewNet();
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  TrainAlone(*alone, optimizer, 1, 2);
  EXPECT_LT(MostDifferent(*alone, *Left()), kTolerance);
}

TEST_F(ResumeTest, AJobThatStartsFromAFileMatchesTorch) {
  const std::string file = absl::StrCat(dir_, "/start.safetensors");
  torch::manual_seed(77);
  const auto start = std::make_shared<Net>();
  ASSERT_TRUE(SaveState(*start, file).ok());
  torch::optim::SGD optimizer(start->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  TrainAlone(*start, optimizer, 1, 1);
  ASSERT_EQ(Run(absl::StrCat("model.init_from=", file), false, NewNet()), absl::OkStatus());
  EXPECT_LT(MostDifferent(*start, *Left()), kTolerance);
}

TEST_F(ResumeTest, RefusesAFileThatLacksParametersUnlessPartialIsAllowed) {
  const std::string file = absl::StrCat(dir_, "/backbone.safetensors");
  struct Backbone : torch::nn::Module {
    Backbone() { register_module("first", torch::nn::Linear(4, 8)); }
  };
  ASSERT_TRUE(SaveState(Backbone(), file).ok());
  const std::string job = absl::StrCat("model.init_from=", file);
  const absl::Status refused = Run(job, false, NewNet());
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("model.init_from: " + file +
                                                        " does not fit the module: it lacks "
                                                        "'last.weight', 'last.bias'"));
  EXPECT_EQ(Run(job + " model.init_partial=true", false, NewNet()), absl::OkStatus());
  MutexLock lock(&mutex_);
  EXPECT_THAT(log_, HasSubstr("last.weight, last.bias; these are left unchanged"));
}

}  // namespace torchps::resume_test
