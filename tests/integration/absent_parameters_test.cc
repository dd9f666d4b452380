// Tests parameters that a step does not reach. The servers' optimizers must leave them alone, as
// torch's optimizers leave parameters without a gradient alone.

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/torch_optimizer.h"
#include "tests/testing/async_job.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/session.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps::absent_parameters_test {

using ::testing::HasSubstr;

constexpr int64_t kSteps = 40;
constexpr int64_t kBatch = 8;
constexpr double kTolerance = 1e-5;

// Elements: body 20 + 5, branch 60 + 12, unused 7 (never reached), head 10 + 2. Some blocks of 16
// elements mix reached and absent parameters, and some contain only the branch.
struct Branching : torch::nn::Module {
  Branching() {
    body = register_module("body", torch::nn::Linear(4, 5));
    branch = register_module("branch", torch::nn::Linear(5, 12));
    unused = register_parameter("unused", torch::full({7}, 7.0f));
    head = register_module("head", torch::nn::Linear(5, 2));
  }
  torch::Tensor Loss(const torch::Tensor& input, bool takes_branch) {
    const torch::Tensor hidden = torch::tanh(body->forward(input));
    torch::Tensor loss = (head->forward(hidden) - 1).square().mean();
    if (takes_branch) loss = loss + branch->forward(hidden).square().mean();
    return loss;
  }
  torch::nn::Linear body{nullptr}, branch{nullptr}, head{nullptr};
  torch::Tensor unused;
};

std::shared_ptr<Branching> NewBranching() {
  torch::manual_seed(4);
  return std::make_shared<Branching>();
}

torch::Tensor Input(int64_t seed) {
  const torch::Tensor index = torch::arange(kBatch * 4, torch::kFloat32).view({kBatch, 4});
  return torch::sin(index * 0.7 + static_cast<double>(seed));
}

torch::Tensor Flat(const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  return torch::nn::utils::parameters_to_vector(module.parameters()).clone();
}

void TakeGradientsAway(const torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters()) parameter.mutable_grad() = torch::Tensor();
}

class AbsentParametersTest : public ::testing::Test {
 protected:
  AbsentParametersTest() : cluster_(*InProcessCluster::Start(/*servers=*/2, &clock_)) {
    at::set_num_threads(1);
  }

  JobSpec Job(const OptimizerSpec& optimizer, const std::string& more) {
    JobSpec job = *ParseJobText(more, "the job");
    job.mutable_wire()->set_block_bytes(64);
    job.mutable_training()->set_epochs(1);
    job.mutable_training()->set_batch_size(kBatch);
    *job.mutable_optimizer() = optimizer;
    return *NormalizeJobSpec(AsyncUnlessSaid(job));
  }

  WorkerOptions Options(const JobSpec& job) {
    WorkerOptions options;
    options.job = job;
    options.servers = cluster_->endpoints();
    options.clock = &clock_;
    options.stop = &stop_;
    return options;
  }

  // Returns the values that a Session learns if even steps take the branch.
  torch::Tensor Learn(const JobSpec& job) {
    const std::shared_ptr<Branching> module = NewBranching();
    torch::Tensor learnt;
    Session session(job, [&]() -> absl::StatusOr<WorkerOptions> { return Options(job); });
    Session::Options options{kSteps * kBatch, ""};
    options.evaluate = [&] {
      learnt = Flat(*module);
      return Evaluation{1, 0, {}};
    };
    session.Join(*module, options);
    while (session.Next()) {
      const torch::Tensor loss = module->Loss(Input(session.step()), session.step() % 2 == 0);
      loss.backward();
      session.Push(loss.detach());
    }
    const absl::Status left = session.Leave();
    EXPECT_TRUE(left.ok()) << left;
    return learnt;
  }

  const SteadyClock clock_;
  StopLatch stop_;
  const std::unique_ptr<InProcessCluster> cluster_;
};

class AbsentParametersOptimizerTest : public AbsentParametersTest,
                                      public ::testing::WithParamInterface<OptimizerCase> {};

TEST_P(AbsentParametersOptimizerTest, ServersLeaveAbsentParametersUnchangedAsTorchDoes) {
  const OptimizerSpec& spec = GetParam().spec;
  const std::shared_ptr<Branching> alone = NewBranching();
  const auto optimizer = TorchOptimizer(spec, alone->parameters());
  for (int64_t step = 0; step < kSteps; ++step) {
    TakeGradientsAway(*alone);
    alone->Loss(Input(step), step % 2 == 0).backward();
    optimizer->step();
  }
  const torch::Tensor learnt = Learn(Job(spec, "consistency { prefetch: false }"));
  EXPECT_LE(RelativeDifference(learnt, Flat(*alone)), kTolerance);
  EXPECT_GT(RelativeDifference(learnt, Flat(*NewBranching())), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(EveryOptimizer, AbsentParametersOptimizerTest,
                         ::testing::ValuesIn(OptimizerCasesOfJobs()),
                         [](const ::testing::TestParamInfo<OptimizerCase>& info) {
                           return info.param.label;
                         });

OptimizerSpec Decaying() {
  OptimizerSpec spec;
  spec.mutable_adam()->set_beta1(0.9);
  spec.mutable_adam()->set_beta2(0.99);
  spec.mutable_adam()->set_epsilon(1e-6);
  spec.set_learning_rate(0.01);
  spec.set_weight_decay(0.1);
  return spec;
}

TEST_F(AbsentParametersTest, UnreachedParametersKeepTheirInitialValues) {
  for (const std::string more :
       {"", "wire { shared_memory: false }", "wire { push { kind: INT8 } }",
        "wire { push { kind: TOP_K fraction: 0.2 } shared_memory: false }",
        "consistency { mode: SYNC }", "training { clip_norm: 0.1 }"}) {
    const auto cluster = *InProcessCluster::Start(/*servers=*/3, &clock_);
    JobSpec job = Job(Decaying(), more);
    const std::shared_ptr<Branching> module = NewBranching();
    Session session(job, [&]() -> absl::StatusOr<WorkerOptions> {
      WorkerOptions options = Options(job);
      options.servers = cluster->endpoints();
      return options;
    });
    session.Join(*module, {kSteps * kBatch, ""});
    while (session.Next()) {
      EXPECT_TRUE(module->unused.eq(7.0f).all().item<bool>()) << more << ", " << session.step();
      const torch::Tensor loss = module->Loss(Input(session.step()), session.step() % 3 == 0);
      loss.backward();
      session.Push(loss.detach());
    }
    const absl::Status left = session.Leave();
    EXPECT_TRUE(left.ok()) << left;
  }
}

TEST_F(AbsentParametersTest, AppliesAGradientThatTheProgramWroteByHand) {
  OptimizerSpec spec;
  spec.mutable_sgd();
  spec.set_learning_rate(1.0);
  const JobSpec job = Job(spec, "training { max_pushes: 2 }");
  const std::shared_ptr<Branching> module = NewBranching();
  Session session(job, [&]() -> absl::StatusOr<WorkerOptions> { return Options(job); });
  session.Join(*module, {kSteps * kBatch, ""});
  ASSERT_TRUE(session.Next());
  module->unused.mutable_grad().fill_(2.0f);
  session.Push(torch::zeros({}));
  ASSERT_TRUE(session.Next());
  EXPECT_TRUE(module->unused.eq(5.0f).all().item<bool>()) << module->unused;
}

// A batch that starts at sample kBatch * p is the input of pass p. The target decides if the pass
// takes the branch.
class Rows final : public Dataset {
 public:
  int64_t size() const override { return kSteps * kBatch; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override {
    const int64_t pass = indices[0] / kBatch;
    return Batch{Input(pass), torch::full({kBatch}, pass % 4 == 1 ? 1.0f : 0.0f)};
  }
};

// Branching for a Task, which needs forward(). Returns the input, from which BranchingLoss()
// computes the loss.
struct TaskNet : Branching {
  torch::Tensor forward(torch::Tensor input) { return input; }
};

Objective BranchingLoss() {
  return Objective([](const Pass& pass) {
    auto& module = dynamic_cast<Branching&>(*pass.module);
    return module.Loss(pass.output(), pass.batch.target[0].item<float>() > 0);
  });
}

TEST_F(AbsentParametersTest, AParameterReachedByOneOfTwoPassesIsUpdatedAsInTorch) {
  const OptimizerSpec spec = Decaying();
  for (const double clip : {0.0, 0.05}) {
    const auto cluster = *InProcessCluster::Start(/*servers=*/2, &clock_);
    torch::manual_seed(4);
    auto alone = std::make_shared<TaskNet>();
    const auto optimizer = TorchOptimizer(spec, alone->parameters());
    const Rows rows;
    for (int64_t pass = 0; pass < kSteps; pass += 2) {
      TakeGradientsAway(*alone);
      for (const int64_t part : {pass, pass + 1}) {
        (alone->Loss(Input(part), part % 4 == 1) / 2).backward();
      }
      if (clip > 0) torch::nn::utils::clip_grad_norm_(alone->parameters(), clip);
      optimizer->step();
    }
    torch::manual_seed(4);
    auto module = std::make_shared<TaskNet>();
    DataSource source;
    source.train = std::make_shared<Rows>();
    torch::Tensor learnt;
    Callbacks callbacks;
    callbacks.on_end = [&](torch::nn::Module& trained) { learnt = Flat(trained); };
    JobSpec job =
        Job(spec, "training { accumulate: 2 shuffle: false } consistency { prefetch: false }");
    job.mutable_training()->set_clip_norm(clip);
    WorkerOptions options = Options(job);
    options.servers = cluster->endpoints();
    const absl::Status run = RunWorker(Task(module, BranchingLoss(), source, callbacks), options);
    ASSERT_TRUE(run.ok()) << run;
    EXPECT_LE(RelativeDifference(learnt, Flat(*alone)), kTolerance) << "clip " << clip;
  }
}

// As in DDP with find_unused_parameters, the mean over workers contains a zero for each worker that
// did not reach the parameter. A parameter that no worker reached stays unchanged.
TEST_F(AbsentParametersTest, SyncUpdatesAParameterThatOnlyOneWorkerReachedAsInTorch) {
  constexpr int kWorkers = 2;
  const OptimizerSpec spec = Decaying();
  const auto takes_branch = [](int64_t step, int slot) {
    return slot == 0 ? step % 2 == 0 : step % 3 == 0;
  };
  const std::shared_ptr<Branching> alone = NewBranching();
  const auto optimizer = TorchOptimizer(spec, alone->parameters());
  for (int64_t step = 0; step < kSteps; ++step) {
    TakeGradientsAway(*alone);
    for (int slot = 0; slot < kWorkers; ++slot) {
      (alone->Loss(Input(step * kWorkers + slot), takes_branch(step, slot)) / kWorkers).backward();
    }
    optimizer->step();
  }

  const JobSpec job = Job(spec, "workers: 2 consistency { mode: SYNC }");
  torch::Tensor learnt;
  // Makes the modules before the threads start, because all threads share torch's generator.
  std::vector<std::shared_ptr<Branching>> modules;
  for (int i = 0; i < kWorkers; ++i) modules.push_back(NewBranching());
  std::vector<std::thread> threads;
  for (const std::shared_ptr<Branching>& module : modules) {
    threads.emplace_back([&, module] {
      at::set_num_threads(1);
      Session session(job, [&]() -> absl::StatusOr<WorkerOptions> { return Options(job); });
      Session::Options options{kWorkers * kSteps * kBatch, ""};
      options.evaluate = [&] {
        learnt = Flat(*module);
        return Evaluation{1, 0, {}};
      };
      session.Join(*module, options);
      while (session.Next()) {
        const torch::Tensor loss = module->Loss(Input(session.step() * kWorkers + session.slot()),
                                                takes_branch(session.step(), session.slot()));
        loss.backward();
        session.Push(loss.detach());
      }
      const absl::Status left = session.Leave();
      EXPECT_TRUE(left.ok()) << left;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(learnt.defined());
  EXPECT_LE(RelativeDifference(learnt, Flat(*alone)), kTolerance);
}

TEST_F(AbsentParametersTest, EndsTheWorkerAndNamesAParameterRegisteredDuringTheJob) {
  auto module = std::make_shared<TaskNet>();
  DataSource source;
  source.train = std::make_shared<Rows>();
  Callbacks callbacks;
  int64_t steps = 0;
  callbacks.on_step = [&](const auto&) {
    if (++steps == 3) module->branch->register_parameter("late", torch::ones({2}));
  };
  const absl::Status run = RunWorker(Task(module, BranchingLoss(), source, callbacks),
                                     Options(Job(Decaying(), "training { shuffle: false }")));
  EXPECT_TRUE(absl::IsFailedPrecondition(run)) << run;
  EXPECT_THAT(std::string(run.message()),
              HasSubstr("parameter 'branch.late' was registered or unfrozen after the job had"));
  EXPECT_EQ(steps, 3);
}

TEST_F(AbsentParametersTest, EndsTheSessionAndNamesAParameterUnfrozenDuringTheJob) {
  const std::shared_ptr<Branching> module = NewBranching();
  module->head->bias.set_requires_grad(false);
  const JobSpec job = Job(Decaying(), "");
  Session session(job, [&]() -> absl::StatusOr<WorkerOptions> { return Options(job); });
  session.Join(*module, {kSteps * kBatch, ""});
  ASSERT_TRUE(session.Next());
  module->head->bias.set_requires_grad(true);
  const torch::Tensor loss = module->Loss(Input(0), true);
  loss.backward();
  session.Push(loss.detach());
  EXPECT_FALSE(session.Next());
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("parameter 'head.bias' was"));
}

TEST_F(AbsentParametersTest, EndsTheWorkerIfItsModuleIsConvertedToDouble) {
  for (const bool prefetch : {false, true}) {
    const auto cluster = *InProcessCluster::Start(/*servers=*/1, &clock_);
    auto module = std::make_shared<TaskNet>();
    DataSource source;
    source.train = std::make_shared<Rows>();
    Callbacks callbacks;
    int64_t steps = 0;
    callbacks.on_step = [&](const auto&) {
      if (++steps == 3) module->to(torch::kFloat64);
    };
    WorkerOptions options = Options(
        Job(Decaying(),
            absl::StrCat("training { shuffle: false } consistency { prefetch: ", prefetch, " }")));
    options.servers = cluster->endpoints();
    const absl::Status run = RunWorker(Task(module, BranchingLoss(), source, callbacks), options);
    EXPECT_TRUE(absl::IsFailedPrecondition(run)) << run;
    EXPECT_THAT(std::string(run.message()), HasSubstr("is no longer in the flat value vector"));
    EXPECT_EQ(steps, 3);
  }
}

}  // namespace torchps::absent_parameters_test
