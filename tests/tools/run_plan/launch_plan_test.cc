#include "torchps/tools/run_plan/launch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace torchps {
namespace {

using Words = std::vector<std::string>;

LaunchOptions Options() {
  LaunchOptions options;
  options.job_file = "jobs/digits.textproto";
  options.job_text = "name: \"it's\"\nworkers: 2";
  options.set = {"training.epochs=3", "workers=2"};
  options.server_binary = "/opt/ps_server";
  options.worker_binary = "/opt/ps_worker";
  options.ssh = {"ssh", "-q"};
  return options;
}

TEST(LaunchPlanTest, LocalServerListensOnAFreeLoopbackPort) {
  const ChildProcess::Options program = ServerProgram(Options(), 1, Place());
  EXPECT_EQ(program.name, "server 1");
  EXPECT_EQ(program.command,
            (Words{"/opt/ps_server", "--listen=127.0.0.1:0", "--exit_with_parent"}));
  EXPECT_FALSE(program.stop_by_stdin);
}

TEST(LaunchPlanTest, ServersShareADirectoryUnlessDisksAreApart) {
  LaunchOptions options = Options();
  options.copies_at = "127.0.0.1:4712";
  EXPECT_EQ(ServerDirectory(options, 1), "");
  options.dir = "/state";
  EXPECT_EQ(ServerDirectory(options, 1), "/state");
  options.disks_apart = true;
  EXPECT_EQ(ServerProgram(options, 0, Place()).command,
            (Words{"/opt/ps_server", "--listen=127.0.0.1:0", "--exit_with_parent",
                   "--dir=/state/disk-0", "--copies_at=127.0.0.1:4712"}));
  EXPECT_EQ(ServerProgram(options, 1, Place()).command,
            (Words{"/opt/ps_server", "--listen=127.0.0.1:0", "--exit_with_parent",
                   "--dir=/state/disk-1"}))
      << "only server 0 gets --copies_at";
}

TEST(LaunchPlanTest, OnlyServer0GetsTheModelFolder) {
  LaunchOptions options = Options();
  options.dir = "/run/state";
  options.model_dir = "/run";
  EXPECT_EQ(ServerProgram(options, 0, Place()).command,
            (Words{"/opt/ps_server", "--listen=127.0.0.1:0", "--exit_with_parent",
                   "--dir=/run/state", "--model_dir=/run"}));
  EXPECT_EQ(
      ServerProgram(options, 1, Place()).command,
      (Words{"/opt/ps_server", "--listen=127.0.0.1:0", "--exit_with_parent", "--dir=/run/state"}));
}

TEST(LaunchPlanTest, WorkerGetsJobServersAndExtraArguments) {
  LaunchOptions options = Options();
  options.data = "/data/mnist";
  options.download = true;
  options.mirrors = "http://a,http://b";
  options.device = "cuda";
  options.threads = 2;
  options.loader_threads = 1;
  options.dir = "/state";
  options.slow_workers = {{1, "8"}};
  EXPECT_EQ(WorkerProgram(options, 1, Place(), {"a:1", "b:2"}, false).command,
            (Words{"/opt/ps_worker", "--servers=a:1,b:2", "--job=jobs/digits.textproto", "--slot=1",
                   "--exit_with_parent", "--set=training.epochs=3", "--set=workers=2",
                   "--data=/data/mnist", "--download", "--mirrors=http://a,http://b",
                   "--device=cuda", "--threads=2", "--loader_threads=1", "--slow=8"}));
}

TEST(LaunchPlanTest, PerWorkerDevicesOverrideTheSharedDevice) {
  LaunchOptions options = Options();
  options.device = "cuda";
  Place place;
  place.device = "cuda:0,cuda:1";
  const Words command = WorkerProgram(options, 1, place, {"a:1"}, false).command;
  EXPECT_EQ(std::count(command.begin(), command.end(), "--device=cuda:0,cuda:1"), 1);
  EXPECT_EQ(std::count(command.begin(), command.end(), "--device=cuda"), 0);
}

TEST(LaunchPlanTest, StageProcessGetsItsIndexAndStageAddresses) {
  Place worker;
  worker.stages = {{"", 7001}, {"beta", 7002}};
  const ChildProcess::Options first = WorkerProgram(Options(), 1, worker, {"a:1"}, true, 0);
  EXPECT_EQ(first.name, "worker 1 stage 0");
  EXPECT_EQ(first.command[4], "--exit_with_parent");
  EXPECT_EQ(first.command[5], "--predecessor_died");
  EXPECT_EQ(first.command[6], "--stage=0");
  EXPECT_EQ(first.command[7], "--replica=127.0.0.1:7001,beta:7002");
  const ChildProcess::Options second = WorkerProgram(Options(), 1, worker, {"a:1"}, false, 1);
  EXPECT_EQ(second.command[2], "beta") << "by ssh";
  EXPECT_NE(second.command[3].find("--stage=1 --replica=127.0.0.1:7001,beta:7002"),
            std::string::npos);
}

TEST(LaunchPlanTest, StageDeviceOverridesTheSharedDevice) {
  LaunchOptions options = Options();
  options.device = "cuda";
  Place worker;
  worker.stages = {{"", 7001, "cuda:3"}, {"", 7002}};
  const auto has = [&](int stage, const std::string& word) {
    const Words command = WorkerProgram(options, 0, worker, {"a:1"}, false, stage).command;
    return std::count(command.begin(), command.end(), word);
  };
  EXPECT_EQ(has(0, "--device=cuda:3"), 1);
  EXPECT_EQ(has(0, "--device=cuda"), 0);
  EXPECT_EQ(has(1, "--device=cuda"), 1)
      << "the worker selects a GPU by number (torchps/worker/device.h)";
}

TEST(LaunchPlanTest, NumberedProcessUsesTheGpuOfItsNumber) {
  LaunchOptions options = Options();
  Place place;
  place.gpu_number = 2;
  const auto has = [&](const std::string& word) {
    const Words command = WorkerProgram(options, 0, place, {"a:1"}, false).command;
    return std::count(command.begin(), command.end(), word);
  };
  EXPECT_EQ(has("--gpu_number=2"), 0) << "the CPU does not use a GPU number";
  options.device = "cuda";
  EXPECT_EQ(has("--gpu_number=2"), 1);
  place.device = "cuda:1";
  EXPECT_EQ(has("--gpu_number=2"), 0);
}

TEST(LaunchPlanTest, RestartedWorkerReportsItsPredecessorsDeath) {
  const Words command = WorkerProgram(Options(), 1, Place(), {"a:1"}, true).command;
  EXPECT_EQ(std::count(command.begin(), command.end(), "--predecessor_died"), 1);
}

TEST(LaunchPlanTest, WithSeveralThreadsIdleOpenMpThreadsSleep) {
  LaunchOptions options = Options();
  options.threads = 1;
  EXPECT_EQ(WorkerProgram(options, 0, Place(), {"a:1"}, false).environment, Words());
  options.threads = 2;
  EXPECT_EQ(WorkerProgram(options, 0, Place(), {"a:1"}, false).environment,
            (Words{"OMP_WAIT_POLICY=passive"}));
}

TEST(LaunchPlanTest, EvaluatorGetsServersButNoJobOrSlot) {
  LaunchOptions options = Options();
  options.data = "/data/mnist";
  options.device = "cuda";
  options.threads = 4;
  options.evaluate_every = "2s";
  options.slow_workers = {{0, "8"}};
  const ChildProcess::Options program = EvaluatorProgram(options, {"a:1", "b:2"});
  EXPECT_EQ(program.name, "evaluator");
  EXPECT_EQ(program.command,
            (Words{"/opt/ps_worker", "--servers=a:1,b:2", "--evaluate_every=2s", "--json",
                   "--exit_with_parent", "--data=/data/mnist", "--device=cuda"}));
}

TEST(LaunchPlanTest, SlowsOnlyTheNamedSlot) {
  LaunchOptions options = Options();
  options.slow_workers = {{1, "8"}};
  for (const std::string& word : WorkerProgram(options, 0, Place(), {"a:1"}, false).command) {
    EXPECT_EQ(word.find("--slow"), std::string::npos);
  }
}

TEST(LaunchPlanTest, PassesInsecureToRemoteServersOnlyOnRequest) {
  LaunchOptions options = Options();
  const Place place{"alpha", 4711};
  EXPECT_EQ(ServerProgram(options, 0, place).command,
            (Words{"ssh", "-q", "alpha",
                   "exec /opt/ps_server --listen=0.0.0.0:4711 --exit_with_parent"}));
  options.insecure = true;
  EXPECT_EQ(ServerProgram(options, 0, place).command,
            (Words{"ssh", "-q", "alpha",
                   "exec /opt/ps_server --listen=0.0.0.0:4711 --exit_with_parent --insecure"}));
}

TEST(LaunchPlanTest, ServerAtAnIpv6AddressListensThere) {
  LaunchOptions options = Options();
  options.insecure = true;
  for (const char* host : {"[fd00::1]", "fd00::1"}) {
    EXPECT_EQ(ServerProgram(options, 0, {host, 4711}).command,
              (Words{"ssh", "-q", "fd00::1",
                     "exec /opt/ps_server '--listen=[::]:4711' --exit_with_parent --insecure"}));
  }
  EXPECT_EQ(
      ServerProgram(options, 0, {"[::1]", 0}).command,
      (Words{"ssh", "-q", "::1", "exec /opt/ps_server '--listen=[::1]:0' --exit_with_parent"}));
}

TEST(LaunchPlanTest, RemoteWorkerGetsTheJobText) {
  LaunchOptions options = Options();
  options.data = "/my data";
  const ChildProcess::Options program =
      WorkerProgram(options, 0, {"beta", 0}, {"alpha:4711"}, false);
  EXPECT_TRUE(program.stop_by_stdin);
  EXPECT_EQ(program.command,
            (Words{"ssh", "-q", "beta",
                   "exec /opt/ps_worker --servers=alpha:4711 --job=/dev/fd/3 --slot=0 "
                   "--exit_with_parent --set=training.epochs=3 --set=workers=2 "
                   "'--data=/my data' 3<<'END_OF_TORCHPS_JOB'\n"
                   "name: \"it's\"\nworkers: 2\nEND_OF_TORCHPS_JOB\n"}));
}

TEST(LaunchPlanTest, WorkersUseTheServersHostAndChosenPort) {
  EXPECT_EQ(*ReachableAddress(Place(), "127.0.0.1:4711"), "127.0.0.1:4711");
  EXPECT_EQ(*ReachableAddress({"alpha", 0}, "0.0.0.0:4711"), "alpha:4711");
  EXPECT_EQ(*ReachableAddress({"fd00::1", 0}, "0.0.0.0:4711"), "[fd00::1]:4711");
  EXPECT_EQ(*ReachableAddress({"[fd00::1]", 0}, "0.0.0.0:4711"), "[fd00::1]:4711");
  EXPECT_FALSE(ReachableAddress(Place(), "nonsense").ok());
  EXPECT_FALSE(ReachableAddress(Place(), "127.0.0.1:0").ok());
}

}  // namespace
}  // namespace torchps
