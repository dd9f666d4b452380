// Compares a custom training loop on parameter servers with the same loop on torch's optimizers.

#include "torchps/session.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/adam.h"
#include "torch/utils.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/worker/loop/lease_cursor.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps::session_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSamples = 96;
constexpr int64_t kBatch = 8;

// Generator and discriminator of points on a line: two modules, two losses, one step.
struct Gan : torch::nn::Module {
  torch::nn::Linear generator{register_module("generator", torch::nn::Linear(4, 2))};
  torch::nn::Linear discriminator{register_module("discriminator", torch::nn::Linear(2, 1))};

  // Computes both gradients at the same values. Returns the sum of both losses.
  torch::Tensor Backward(absl::Span<const int64_t> samples) {
    const torch::Tensor index =
        torch::tensor(std::vector<int64_t>(samples.begin(), samples.end()), torch::kFloat32)
            .unsqueeze(1) /
        static_cast<double>(kSamples);
    const torch::Tensor real = torch::cat({index, 1 - index}, 1);
    const torch::Tensor fake = generator->forward(torch::cat({index, index, real}, 1));
    const torch::Tensor told_apart = (discriminator->forward(real) - 1).square().mean() +
                                     discriminator->forward(fake.detach()).square().mean();
    told_apart.backward();
    for (torch::Tensor& weight : discriminator->parameters()) weight.set_requires_grad(false);
    const torch::Tensor found_out = (discriminator->forward(fake) - 1).square().mean();
    found_out.backward();
    for (torch::Tensor& weight : discriminator->parameters()) weight.set_requires_grad(true);
    return told_apart.detach() + found_out.detach();
  }
};

std::shared_ptr<Gan> NewGan() {
  torch::manual_seed(4);
  return std::make_shared<Gan>();
}

JobSpec Job(const std::string& more) {
  return *NormalizeJobSpec(*ParseJobText(
      absl::StrCat("optimizer { adam { beta1: 0.5 } learning_rate: 0.01 } ", more), "the job"));
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : cluster_(*InProcessCluster::Start(/*servers=*/2, &clock_)) {
    at::set_num_threads(1);
  }

  Session NewSession(const JobSpec& job) {
    return Session(job, [this, job]() -> absl::StatusOr<WorkerOptions> {
      WorkerOptions options;
      options.job = job;
      options.servers = cluster_->endpoints();
      options.clock = &clock_;
      options.stop = &stop_;
      return options;
    });
  }

  JobStatus Status() {
    grpc::ClientContext context;
    JobStatus status;
    const auto stub = Coordinator::NewStub(cluster_->endpoints()[0].channel);
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    return status;
  }

  const SteadyClock clock_;
  StopLatch stop_;
  const std::unique_ptr<InProcessCluster> cluster_;
};

TEST_F(SessionTest, AGanWithOneWorkerMatchesTorch) {
  const std::shared_ptr<Gan> gan = NewGan();
  std::vector<torch::Tensor> learnt;
  {
    Session session = NewSession(Job(absl::StrCat(
        "consistency { mode: SYNC } training { epochs: 3 batch_size: ", kBatch, " }")));
    Session::Options options{kSamples, "points on a line"};
    // The last evaluation sees values that include the last push.
    options.evaluate = [&] {
      learnt.clear();
      for (const torch::Tensor& value : gan->parameters()) {
        learnt.push_back(value.detach().clone());
      }
      return Evaluation{1, 0, {}};
    };
    session.Join(*gan, options);
    int64_t steps = 0;
    while (session.Next()) {
      EXPECT_EQ(session.step(), steps++);
      EXPECT_EQ(session.samples().size(), kBatch);
      session.Push(gan->Backward(session.samples()));
    }
    EXPECT_EQ(steps, 3 * kSamples / kBatch);
    const absl::Status left = session.Leave();
    ASSERT_TRUE(left.ok()) << left;
  }
  EXPECT_EQ(Status().phase(), JobStatus::DONE);
  EXPECT_EQ(Status().data(), "points on a line");
  EXPECT_EQ(Status().epoch(2).used(), kSamples);

  const std::shared_ptr<Gan> alone = NewGan();
  torch::optim::Adam adam(alone->parameters(), torch::optim::AdamOptions(0.01).betas({0.5, 0.999}));
  EpochPositions positions(/*seed=*/1, kSamples);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (int64_t begin = 0; begin < kSamples; begin += kBatch) {
      adam.zero_grad();
      alone->Backward(positions.Samples(epoch, begin, begin + kBatch));
      adam.step();
    }
  }
  const std::vector<torch::Tensor> expected = alone->parameters();
  ASSERT_EQ(learnt.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT((learnt[i] - expected[i]).abs().max().item<float>(), 1e-5) << i;
  }
}

TEST_F(SessionTest, EvaluationsSeeNewValuesAndReportTheirMetric) {
  const std::shared_ptr<Gan> gan = NewGan();
  std::vector<torch::Tensor> evaluated;
  Session session = NewSession(Job("training { epochs: 2 batch_size: 8 }"));
  Session::Options options;
  options.samples = kSamples;
  options.evaluate = [&] {
    EXPECT_FALSE(gan->is_training());
    evaluated.push_back(gan->generator->weight.detach().clone());
    return Evaluation{10, 0.5, {{"likeness", static_cast<double>(evaluated.size())}}};
  };
  session.Join(*gan, options);
  while (session.Next()) session.Push(gan->Backward(session.samples()));
  ASSERT_TRUE(session.status().ok()) << session.status();
  ASSERT_EQ(Status().evaluation_size(), 2);
  EXPECT_EQ(Status().evaluation(1).metric(0).name(), "likeness");
  ASSERT_EQ(evaluated.size(), 2u);
  EXPECT_FALSE(evaluated[0].equal(evaluated[1]));
}

TEST_F(SessionTest, TwoWorkersTogetherTakeEachSampleOnceInEachEpoch) {
  const JobSpec job = Job("workers: 2 training { epochs: 2 batch_size: 8 }");
  // Makes the modules before the first thread starts, because all threads share torch's generator,
  // and a worker that joins seeds it.
  const std::vector<std::shared_ptr<Gan>> gans = {NewGan(), NewGan()};
  std::vector<std::thread> threads;
  std::vector<int64_t> taken(2, 0);
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, gan = gans[i], i] {
      at::set_num_threads(1);
      Session session = NewSession(job);
      session.Join(*gan, {kSamples, ""});
      while (session.Next()) {
        taken[i] += static_cast<int64_t>(session.samples().size());
        session.Push(gan->Backward(session.samples()));
      }
      const absl::Status left = session.Leave();
      EXPECT_TRUE(left.ok()) << left;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken[0] + taken[1], 2 * kSamples);
}

TEST_F(SessionTest, ARefusedLossEndsTheLoopAndLeaveReturnsTheError) {
  const std::shared_ptr<Gan> gan = NewGan();
  Session session = NewSession(Job("training { batch_size: 8 }"));
  session.Join(*gan, {kSamples, ""});
  ASSERT_TRUE(session.Next());
  session.Push(torch::zeros({2}));
  EXPECT_FALSE(session.Next());
  EXPECT_EQ(session.status().message(),
            "Push() got a loss of 2 elements; expected one: the mean over the step's samples");
  EXPECT_EQ(session.Leave(), session.status());
}

TEST_F(SessionTest, RefusesAParameterThatTheLoopChangedInPlace) {
  const std::shared_ptr<Gan> gan = NewGan();
  Session session = NewSession(Job("training { batch_size: 8 }"));
  session.Join(*gan, {kSamples, ""});
  ASSERT_TRUE(session.Next());
  session.Push(torch::zeros({1}));
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : gan->parameters()) parameter.clamp_(-0.01, 0.01);
  }
  ASSERT_TRUE(session.Next());
  session.Push(torch::zeros({1}));
  EXPECT_TRUE(absl::StrContains(session.status().message(), "in place")) << session.status();
  EXPECT_FALSE(session.Leave().ok());
}

TEST_F(SessionTest, AWorkerThatLeavesEarlyDoesNotBlockTheOtherWorker) {
  // If a slot leaves without notice, the job waits until the slot's lease expires. With 600 s this
  // test would not end in time.
  const JobSpec job =
      Job("workers: 2 training { epochs: 4 batch_size: 8 } membership { lease_seconds: 600 } "
          "consistency { mode: ASYNC }");
  const std::shared_ptr<Gan> leaving = NewGan();
  const std::shared_ptr<Gan> staying = NewGan();
  std::vector<std::string> printed;
  Session first(job, [&]() -> absl::StatusOr<WorkerOptions> {
    WorkerOptions options;
    options.job = job;
    options.servers = cluster_->endpoints();
    options.clock = &clock_;
    options.stop = &stop_;
    options.print = [&printed](const std::string& line) { printed.push_back(line); };
    return options;
  });
  first.Join(*leaving, {kSamples, ""});
  Session second = NewSession(job);
  second.Join(*staying, {kSamples, ""});
  std::thread other([&] {
    while (second.Next()) second.Push(staying->Backward(second.samples()));
  });
  EXPECT_TRUE(first.Next());
  first.Push(leaving->Backward(first.samples()));
  const absl::Status left = first.Leave();
  EXPECT_TRUE(left.ok()) << left;
  for (const std::string& line : printed) EXPECT_THAT(line, Not(HasSubstr("worker done")));
  other.join();
  const absl::Status done = second.Leave();
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(Status().epoch(3).used(), kSamples);
}

TEST_F(SessionTest, LeaveReturnsTheFirstErrorPassedToFail) {
  const std::shared_ptr<Gan> gan = NewGan();
  Session session = NewSession(Job("training { batch_size: 8 }"));
  session.Join(*gan, {kSamples, ""});
  ASSERT_TRUE(session.Next());
  session.Fail(absl::InternalError("the program's loop failed: it throws"));
  session.Fail(absl::InternalError("and then"));
  EXPECT_EQ(session.Leave().message(), "the program's loop failed: it throws");
}

TEST_F(SessionTest, RefusesCallsOutOfOrder) {
  const std::shared_ptr<Gan> gan = NewGan();
  Session early = NewSession(Job(""));
  EXPECT_FALSE(early.Next());
  EXPECT_THAT(std::string(early.status().message()), HasSubstr("call Join() before Next()"));
  Session empty = NewSession(Job(""));
  empty.Join(*gan, {});
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("Session::Options::samples is 0"));
  // After the error a loop may still make these calls.
  EXPECT_TRUE(empty.samples().empty());
  EXPECT_EQ(empty.epoch(), 0);
  EXPECT_EQ(empty.step(), 0);
  EXPECT_EQ(empty.slot(), -1);
  EXPECT_TRUE(empty.device().is_cpu());
  Session twice = NewSession(Job(""));
  twice.Join(*gan, {kSamples, ""});
  ASSERT_TRUE(twice.Next());
  EXPECT_FALSE(twice.Next());
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("call Push() before Next()"));
}

TEST_F(SessionTest, RefusesToJoinAsOneStageOfAModel) {
  const std::shared_ptr<Gan> gan = NewGan();
  const JobSpec job = Job("");
  Session session(job, [this, job]() -> absl::StatusOr<WorkerOptions> {
    WorkerOptions options;
    options.job = job;
    options.servers = cluster_->endpoints();
    options.clock = &clock_;
    options.stop = &stop_;
    options.stage = 1;
    options.replica = {"127.0.0.1:1", "127.0.0.1:2"};
    return options;
  });
  session.Join(*gan, {kSamples, ""});
  EXPECT_TRUE(absl::IsInvalidArgument(session.status())) << session.status();
  EXPECT_THAT(std::string(session.status().message()), HasSubstr("leave out --stage"));
  EXPECT_EQ(Status().slot_size(), 0) << "the worker has not joined";
}

TEST_F(SessionTest, AStopEndsTheLoopBetweenSteps) {
  const std::shared_ptr<Gan> gan = NewGan();
  Session session = NewSession(Job("training { epochs: 1000 batch_size: 8 }"));
  session.Join(*gan, {kSamples, ""});
  ASSERT_TRUE(session.Next());
  stop_.Stop("SIGTERM");
  session.Push(gan->Backward(session.samples()));
  EXPECT_FALSE(session.Next());
  EXPECT_TRUE(absl::IsCancelled(session.Leave()));
}

}  // namespace torchps::session_test
