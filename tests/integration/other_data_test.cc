// Tests that a worker's table with other rows is refused even if the size matches the job's table.

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/common/clock.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/data_registry.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"
#include "torchps/program/local_run.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps::other_data_test {

using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  Net() : linear(register_module("linear", torch::nn::Linear(1, 2))) {}
  torch::Tensor forward(const torch::Tensor& input) { return linear->forward(input); }
  torch::nn::Linear linear;
};

class OtherDataTest : public ::testing::Test {
 protected:
  OtherDataTest() : cluster_(*InProcessCluster::Start(/*servers=*/1, &clock_)) {
    const auto job = ParseJobText(
        "workers: 2 training { epochs: 1 batch_size: 8 } data { source: 'csv' } "
        "optimizer { sgd {} learning_rate: 0.1 }",
        "the test's job");
    job_ = *NormalizeJobSpec(*job);
  }

  // A worker with a table of 40 rows.
  struct Worker {
    Task task;
    absl::Status status;
  };
  // Workers standardize tables, so tables that differ only by an offset or a scale would become
  // equal. Different slopes give tables that stay different.
  Worker MakeWorker(const std::string& name, int slope) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/", name, ".csv");
    std::ofstream file(path);
    file << "number,kind\n";
    for (int row = 0; row < 40; ++row) file << row * (row + slope) << "," << row % 2 << "\n";
    file.close();
    return {Task(std::make_shared<Net>(), CrossEntropy(), OpenData(job_, path)), absl::OkStatus()};
  }
  void Run(Worker* worker) {
    at::set_num_threads(1);
    WorkerOptions options;
    options.job = job_;
    options.servers = cluster_->endpoints();
    options.clock = &clock_;
    options.stop = &stop_;
    worker->status = RunWorker(worker->task, options);
  }
  int Joined() {
    const auto stub = Coordinator::NewStub(cluster_->endpoints()[0].channel);
    grpc::ClientContext context;
    JobStatus status;
    EXPECT_TRUE(stub->GetJobStatus(&context, JobStatusRequest(), &status).ok());
    return status.slot_size();
  }

  const SteadyClock clock_;
  StopLatch stop_;
  const std::unique_ptr<InProcessCluster> cluster_;
  JobSpec job_;
};

TEST_F(OtherDataTest, RefusesAWorkerWithOtherRowsAndAcceptsOneWithACopy) {
  Worker anna = MakeWorker("anna", 0);
  Worker bert = MakeWorker("bert", 1000);
  Worker carl = MakeWorker("carl", 0);
  ASSERT_EQ(anna.task.data().train->size(), bert.task.data().train->size());
  std::thread first([&] { Run(&anna); });
  EXPECT_TRUE(Eventually([&] { return Joined() == 1; }));
  Run(&bert);
  EXPECT_TRUE(absl::IsFailedPrecondition(bert.status)) << bert.status;
  EXPECT_THAT(std::string(bert.status.message()),
              HasSubstr("the running job has different training samples than this worker"));
  EXPECT_EQ(Joined(), 1);
  Run(&carl);
  first.join();
  EXPECT_TRUE(carl.status.ok()) << carl.status;
  EXPECT_TRUE(anna.status.ok()) << anna.status;
}

}  // namespace torchps::other_data_test
