// Tests when TrainMain() calls a program's factory. Each test calls TrainMain() as main() does.

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/gpu.h"
#include "torch/cuda.h"
#include "torch/nn/modules/linear.h"
#include "torch/utils.h"
#include "torchps/common/stop_latch.h"
#include "torchps/train.h"

namespace torchps {
namespace {

constexpr char kJob[] = R"(
  workers: 1
  training { epochs: 1 batch_size: 8 }
  optimizer { sgd {} learning_rate: 0.5 }
)";

std::string JobFile() {
  const std::string job = ::testing::TempDir() + "/train_main_test.textproto";
  std::ofstream(job) << kJob;
  return job;
}

// Returns the exit code of TrainMain() with these flags. The factory calls `look` and then fails.
int GetCode(std::vector<std::string> flags, const std::function<void()>& look) {
  flags.insert(flags.begin(), "train_main_test");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  return TrainMain(static_cast<int>(argv.size()), argv.data(),
                   [&](const JobSpec&) -> absl::StatusOr<Task> {
                     look();
                     return absl::InvalidArgumentError("enough was seen");
                   });
}

// Returns true if TrainMain() with --local and these flags calls the factory. The factory calls
// `look`.
bool CallsFactory(const std::vector<std::string>& flags, const std::function<void()>& look) {
  std::vector<std::string> all = {"--local", "--job=" + JobFile()};
  all.insert(all.end(), flags.begin(), flags.end());
  bool called = false;
  const int code = GetCode(std::move(all), [&] {
    called = true;
    look();
  });
  EXPECT_EQ(code, 2) << "the exit code of the factory's error, or of a missing device";
  return called;
}

TEST(TrainMainTest, TheFactorySeesTheJobsThreadsAndSeed) {
  int threads = 0;
  torch::Tensor drawn;
  EXPECT_TRUE(CallsFactory({"--device=cpu", "--threads=2", "--set=seed=7"}, [&] {
    threads = at::get_num_threads();
    drawn = torch::rand({4});
  }));
  EXPECT_EQ(threads, 2);
  torch::manual_seed(7);
  EXPECT_TRUE(torch::equal(drawn, torch::rand({4})));
}

// Ends the process, with exit code 0 on success. Tests that call TrainMain() once more run it in a
// new process, because it consumes the flags.
[[noreturn]] void End(bool is_well) {
  std::_Exit(is_well && !::testing::Test::HasFailure() ? 0 : 1);
}

TEST(TrainMainDeathTest, AMissingDeviceEndsTheProcessBeforeTheFactory) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(End(!CallsFactory({"--device=cuda:99"}, [] {})), ::testing::ExitedWithCode(0), "");
}

// The modes that do not train check this flag too.
TEST(TrainMainDeathTest, EachModeRefusesAnInvalidHandicap) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::vector<std::vector<std::string>> ways = {
      {"--job=" + JobFile(), "--evaluate=none.safetensors"},
      {"--job=" + JobFile(), "--predict=none.safetensors"},
      {"--servers=127.0.0.1:1", "--evaluate_every=1s"},
      {"--job=" + JobFile(), "--servers=127.0.0.1:1"}};
  for (std::vector<std::string> flags : ways) {
    SCOPED_TRACE(flags.back());
    flags.emplace_back("--slow=0.5");
    EXPECT_EXIT(std::_Exit(GetCode(flags, [] {})), ::testing::ExitedWithCode(2),
                "--slow is 0.5; expected a factor of at least 1");
  }
}

// Sends this process a stop, then keeps reading data for a minute.
void ReadForLong() {
  kill(getpid(), SIGTERM);
  StopLatch never;
  never.WaitFor(absl::Minutes(1));
}

TEST(TrainMainDeathTest, ReportsAFactoryThatThrowsANonException) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string job = "--job=" + JobFile();
  EXPECT_EXIT(std::_Exit(GetCode({job, "--local"}, [] { throw 7; })), ::testing::ExitedWithCode(2),
              "making the task failed: it threw a value of type int");
}

TEST(TrainMainDeathTest, AStopInterruptsDataLoading) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string job = "--job=" + JobFile();
  EXPECT_EXIT(std::_Exit(GetCode({job, "--local"}, ReadForLong)), ::testing::ExitedWithCode(0), "");
  // The stopped evaluation has no result, so the exit code is 1.
  const std::string look = "--evaluate=" + JobFile();
  EXPECT_EXIT(std::_Exit(GetCode({job, look}, ReadForLong)), ::testing::ExitedWithCode(1),
              "train_main_test: terminated");
}

TEST(TrainMainDeathTest, AnErrorWhileCuttingTheModuleIsReportedAsAUsageError) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<std::string> flags = {"train_main_test", "--job=" + JobFile(),
                                    "--servers=127.0.0.1:1", "--stage=0",
                                    "--replica=127.0.0.1:2,127.0.0.1:3"};
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  const TaskFactory factory = [](const JobSpec&) -> absl::StatusOr<Task> {
    DataSource data;
    data.train = std::make_shared<TensorDataset>(torch::zeros({4, 3}), torch::zeros({4, 2}));
    return Task(torch::nn::Linear(3, 2), MeanSquaredError(), data);
  };
  const ModuleCutter cut = [](const JobSpec&, const torch::nn::Module&,
                              int stages) -> absl::StatusOr<Stages> {
    TORCH_CHECK(stages == 1, "this module is in one piece");
    return absl::UnimplementedError("not reached");
  };
  EXPECT_EXIT(std::_Exit(TrainMain(static_cast<int>(argv.size()), argv.data(), factory, cut)),
              ::testing::ExitedWithCode(2),
              "cutting the module into stages failed: this module is in one piece");
}

using TrainMainGpuTest = GpuTest;

TEST_F(TrainMainGpuTest, TheFactoryCreatesTensorsOnTheWorkersGpu) {
  // With several GPUs, the last one differs from the default.
  const int last = static_cast<int>(torch::cuda::device_count()) - 1;
  const std::string name = "cuda:" + std::to_string(last);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto finds_its_device = [&] {
    std::string found;
    const bool called = CallsFactory(
        {"--device=" + name}, [&] { found = torch::zeros({1}, torch::kCUDA).device().str(); });
    return called && found == name;
  };
  EXPECT_EXIT(End(finds_its_device()), ::testing::ExitedWithCode(0), "");
}

// The loss kernel finds the error while other work is queued on the GPU. From then on each GPU call
// throws, even the release of memory.
TEST_F(TrainMainGpuTest, AnInvalidLabelExitsWithAMessage) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<std::string> flags = {"train_main_test", "--local", "--job=" + JobFile(),
                                    "--device=cuda:0"};
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  const TaskFactory factory = [](const JobSpec&) -> absl::StatusOr<Task> {
    DataSource data;
    data.train =
        std::make_shared<TensorDataset>(torch::zeros({64, 3}), torch::full({64}, 7, torch::kInt64));
    return Task(torch::nn::Linear(3, 2), CrossEntropy(), data);
  };
  EXPECT_EXIT(std::_Exit(TrainMain(static_cast<int>(argv.size()), argv.data(), factory)),
              ::testing::ExitedWithCode(1), "train_main_test: .*device-side assert triggered");
}

}  // namespace
}  // namespace torchps
