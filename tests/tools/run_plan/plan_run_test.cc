#include "torchps/tools/run_plan/plan_run.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/tools/testing.h"
#include "torchps/job/job_spec.h"
#include "torchps/tools/run_plan/run_flags.h"

namespace torchps {
namespace {

// Makes a folder with a job and the programs of a job.
class PlanRunTest : public testing::Test {
 protected:
  PlanRunTest() {
    std::filesystem::create_directory(folder_.path("bin"));
    server_ = folder_.WriteScript("bin/ps_server", "");
    worker_ = folder_.WriteScript("bin/ps_worker", "");
    job_ = folder_.WriteFile("job.textproto",
                             "name: 'tiny' workers: 3 model { name: 'mlp' } "
                             "optimizer { sgd {} learning_rate: 0.1 }");
  }

  absl::StatusOr<RunPlan> Plan(std::vector<std::string> arguments) {
    const auto flags = FlagTable("psctl run", RunFlags()).Parse(arguments);
    EXPECT_TRUE(flags.ok()) << flags.status();
    return PlanRun(*flags, folder_.path("bin"));
  }
  absl::StatusOr<RunPlan> PlanWithJob(std::vector<std::string> arguments) {
    arguments.push_back("--job=" + job_);
    return Plan(arguments);
  }
  std::string Complaint(std::vector<std::string> arguments) {
    return std::string(PlanWithJob(std::move(arguments)).status().message());
  }

  const TestFolder folder_;
  std::string server_;
  std::string worker_;
  std::string job_;
};

TEST_F(PlanRunTest, FlagOverridesTheJobsWorkerCount) {
  const auto plan = PlanWithJob({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->hosts.servers.size(), 2u);
  EXPECT_EQ(plan->hosts.workers.size(), 3u);
  EXPECT_TRUE(plan->launch.set.empty());

  const auto other = PlanWithJob({"--servers=1", "--workers=5", "--set=training.epochs=4"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->hosts.servers.size(), 1u);
  EXPECT_EQ(other->hosts.workers.size(), 5u);
  EXPECT_EQ(other->job.workers(), 5);
  EXPECT_EQ(other->job.training().epochs(), 4);
  EXPECT_EQ(other->launch.set, (std::vector<std::string>{"training.epochs=4", "workers=5"}));
}

TEST_F(PlanRunTest, WarnsAboutMomentumWithStaleness) {
  const auto warning = [this](std::vector<std::string> set, const char* mode = "ASYNC") {
    set.push_back("--set=optimizer.sgd.momentum=0.9");
    set.push_back(std::string("--set=consistency.mode=") + mode);
    const auto plan = PlanWithJob(set);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return MomentumWarning(plan->job);
  };
  const std::string server = "--set=optimizer.sgd.momentum_at=SERVER";
  EXPECT_EQ(warning({server}),
            "optimizer.sgd.momentum_at is SERVER in ASYNC with apply EACH_PUSH and 3 workers: late "
            "gradients make the largest stable learning rate about 4.6 times lower than WORKER's, "
            "and lower than without momentum; remove momentum_at, and use a dampening of 0 "
            "(docs/protocol.md, \"Momentum\")");
  EXPECT_EQ(warning({}), "") << "the momentum is in the workers";
  EXPECT_EQ(warning({server, "--workers=1"}), "");
  EXPECT_EQ(warning({server}, "SYNC"), "");
}

TEST_F(PlanRunTest, FindsProgramsNextToPsctl) {
  const auto plan = PlanWithJob({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(std::filesystem::equivalent(plan->launch.server_binary, server_));
  EXPECT_TRUE(std::filesystem::equivalent(plan->launch.worker_binary, worker_));
}

TEST_F(PlanRunTest, ReportsMistakesBeforeStartingProcesses) {
  EXPECT_EQ(Plan({}).status().message(),
            "'psctl run' needs --job=FILE, or the name of a job: digits, mnist, text");
  EXPECT_EQ(Complaint({"--servers=0"}), "--servers=0: expected a whole number from 1 to 1024");
  EXPECT_EQ(Complaint({"--workers=x"}), "--workers=x: expected a whole number from 1 to 4096");
  EXPECT_EQ(Complaint({"--threads=0"}), "--threads=0: expected a whole number from 1 to 1024");
  EXPECT_EQ(Complaint({"--slow=3:2"}), "--slow=3:2: expected SLOT:FACTOR with a slot from 0 to 2");
  EXPECT_EQ(Complaint({"--target=accuracy"}),
            "--target=accuracy: expected METRIC:VALUE, as accuracy:0.98 or loss:2.5");
  EXPECT_EQ(Complaint({"--target_every=often"}),
            "--target_every=often: expected a duration such as 5s or 500ms");
  EXPECT_EQ(Complaint({"--report=/nowhere/report.json"}),
            "--report=/nowhere/report.json: there is no folder /nowhere");
  EXPECT_EQ(Complaint({"--report=/tmp"}), "--report=/tmp is a folder; expected a file");
  EXPECT_EQ(Complaint({"--worker_binary=/nowhere/mine"}),
            "--worker_binary=/nowhere/mine is not an executable program");
  EXPECT_EQ(Complaint({"--server_binary=" + job_}),
            "--server_binary=" + job_ + " is not an executable program");
  EXPECT_EQ(Complaint({"--ssh=rsh"}), "--ssh works with --hosts only");
}

TEST_F(PlanRunTest, BuiltInJobPrecedesFoldersButNotFiles) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path(""));
  std::filesystem::create_directory("digits");
  const auto built_in = Plan({"--job=digits"});
  std::filesystem::remove("digits");
  folder_.WriteFile("digits", ReadWholeFile(job_));
  const auto own = Plan({"--job=digits"});
  std::filesystem::current_path(before);
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  EXPECT_EQ(built_in->job.name(), "mlp_digits");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->job.name(), "tiny");
}

TEST_F(PlanRunTest, ReadsAJobFromAPipeOnce) {
  const std::string pipe = folder_.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << ReadWholeFile(job_); });
  // psctl parses the job twice, because --workers changes it.
  const absl::StatusOr<RunPlan> plan = Plan({"--job=" + pipe, "--workers=2"});
  writer.join();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->job.workers(), 2);
  EXPECT_EQ(plan->launch.job_text, ReadWholeFile(job_));
}

TEST_F(PlanRunTest, ResumeUsesTheJobInTheFolder) {
  const std::string dir = "--dir=" + folder_.path("run");
  const std::string nothing(Plan({dir, "--resume"}).status().message());
  EXPECT_NE(nothing.find("run holds nothing"), std::string::npos) << nothing;
  std::filesystem::create_directories(folder_.path("run/state/log-0-of-1"));
  std::filesystem::copy_file(job_, folder_.path("run/job.textproto"));
  const auto plan = Plan({dir, "--resume", "--epochs=7"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->job.name(), "tiny");
  EXPECT_EQ(plan->job.training().epochs(), 7);
  EXPECT_EQ(Plan({dir, "--resume", "--hosts=hosts"}).status().message(),
            "'psctl run' needs --job=FILE, or the name of a job: digits, mnist, text");
}

TEST_F(PlanRunTest, JobErrorsNameTheField) {
  EXPECT_NE(Complaint({"--set=training.epochs=-1"}).find("training.epochs"), std::string::npos);
  EXPECT_NE(Complaint({"--set=training.epoch=1"}).find("epoch"), std::string::npos);
  EXPECT_EQ(PlanWithJob({"--set=nonsense"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Plan({"--job=/nowhere/job"}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PlanRunTest, RejectsUnknownModelNamesBeforeStarting) {
  EXPECT_EQ(
      Complaint({"--set=model.name=mpl"}),
      "job field model.name is \"mpl\"; did you mean \"mlp\"? ps_worker has: linear, mlp, convnet, "
      "resnet18, transformer; for a program with its own models or data, set --worker_binary");
  EXPECT_NE(Complaint({"--set=data.source=digit"}).find("did you mean \"digits\"?"),
            std::string::npos);
  EXPECT_EQ(
      Complaint({"--device=gpu"}),
      "device 'gpu' is not known; expected auto, cpu, cuda, cuda:INDEX, cuda:all, or several, "
      "as cuda:0,cuda:1");
  EXPECT_EQ(Complaint({"--target=acuracy:0.9"}).substr(0, 82),
            "--target=acuracy:0.9: the program does not measure that; did you mean accuracy? it");
  // Users' own programs may register more models and metrics, so psctl accepts unknown names.
  const std::string own = folder_.WriteScript("mine", "");
  const auto plan =
      PlanWithJob({"--set=model.name=mpl", "--target=f1:1", "--worker_binary=" + own});
  EXPECT_TRUE(plan.ok()) << plan.status();
}

TEST_F(PlanRunTest, NamesTheBuildCommandForMissingPrograms) {
  std::filesystem::remove(worker_);
  const std::string complaint = Complaint({});
  EXPECT_NE(complaint.find("/bin/ps_worker"), std::string::npos) << complaint;
  EXPECT_NE(complaint.find("'bazel build //torchps:ps_worker'"), std::string::npos) << complaint;
}

TEST_F(PlanRunTest, ContinueCommandRepeatsTheTypedFlags) {
  const auto plan = PlanWithJob({"--servers=3", "--workers=2", "--set=seed=9", "--restarts=0",
                                 "--data=my data", "--target=loss:1", "--target=loss:2",
                                 "--insecure", "--dir=" + folder_.path("run")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(
      plan->flags_again,
      " --servers=3 '--data=my data' --restarts=0 --target=loss:1 --target=loss:2 --insecure");
}

TEST_F(PlanRunTest, HostsFileSetsServersAndWorkers) {
  const std::string hosts =
      folder_.WriteFile("hosts", "server alpha:4711\nworker alpha slots=2\nworker beta\n");
  const auto plan = PlanWithJob({"--hosts=" + hosts, "--insecure", "--ssh=ssh -p 22"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->hosts.workers[2].host, "beta");
  EXPECT_EQ(plan->launch.ssh, (std::vector<std::string>{"ssh", "-p", "22"}));
  EXPECT_EQ(plan->launch.job_text, ReadWholeFile(job_));
  EXPECT_EQ(plan->launch.threads, 0);

  EXPECT_EQ(Complaint({"--hosts=" + hosts, "--workers=2"}),
            "--workers and --hosts exclude each other: the file says how many");
  EXPECT_EQ(Complaint({"--hosts=" + hosts}),
            "the server on alpha would listen on the network without encryption; give it "
            "certificates with --certs=DIR ('psctl certs' makes them; DIR must exist on every "
            "machine), or set --insecure if that network is private");
}

TEST_F(PlanRunTest, GpusMakeOneWorkerOnEachMachine) {
  const auto here = PlanWithJob({"-g", "4"});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(here->hosts.workers.size(), 1u);
  EXPECT_EQ(here->hosts.workers[0].device, "cuda:0,cuda:1,cuda:2,cuda:3");
  EXPECT_EQ(here->job.workers(), 1);

  const std::string hosts =
      folder_.WriteFile("hosts", "server localhost\nworker localhost\nworker 127.0.0.1\n");
  const auto there = PlanWithJob({"--gpus=2", "--device=cuda", "--hosts=" + hosts});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->hosts.workers.size(), 2u);
  EXPECT_EQ(there->hosts.workers[1].host, "127.0.0.1");
  EXPECT_EQ(there->hosts.workers[1].device, "cuda:0,cuda:1");
}

TEST_F(PlanRunTest, NumbersHostsFileProcessesByMachine) {
  const std::string hosts = folder_.WriteFile(
      "hosts", "server localhost\nworker localhost\nworker 127.0.0.1\nworker localhost\n");
  const auto there = PlanWithJob({"--device=cuda", "--hosts=" + hosts});
  ASSERT_TRUE(there.ok()) << there.status();
  ASSERT_EQ(there->hosts.workers.size(), 3u);
  EXPECT_EQ(there->hosts.workers[1].gpu_number, 0);
  EXPECT_EQ(there->hosts.workers[2].gpu_number, 1);
  const auto here = PlanWithJob({"--device=cuda", "--workers=2"});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(here->hosts.workers[1].gpu_number, -1) << "the slot determines the GPU";
}

TEST_F(PlanRunTest, GpusPerWorkerSplitsAMachineIntoWorkers) {
  const auto each = PlanWithJob({"--gpus=4", "--gpus_per_worker=1"});
  ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_EQ(each->job.workers(), 4);
  EXPECT_EQ(each->hosts.workers[3].device, "cuda");
  EXPECT_EQ(each->launch.device, "cuda");
  const auto pairs = PlanWithJob({"--gpus=4", "--gpus_per_worker=2"});
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(pairs->job.workers(), 2);
  EXPECT_EQ(pairs->hosts.workers[1].device, "cuda:2,cuda:3");

  EXPECT_EQ(PlanWithJob({})->launch.device, "");
  EXPECT_EQ(PlanWithJob({"--device=cpu,cpu"})->launch.device, "cpu,cpu");
  EXPECT_EQ(Complaint({"--gpus=2", "--workers=2"}),
            "--gpus and --workers exclude each other: a machine runs one worker for its GPUs, or "
            "with --gpus_per_worker=M one for every M GPUs");
  EXPECT_EQ(Complaint({"--gpus=2", "--device=cuda:1"}),
            "--gpus and --device=cuda:1 exclude each other: --gpus selects the GPUs");
  EXPECT_EQ(Complaint({"--gpus=0"}), "--gpus=0: expected a whole number from 1 to 64");
  EXPECT_EQ(Complaint({"--gpus_per_worker=2"}),
            "--gpus_per_worker needs --gpus=N, a machine's GPUs");
  EXPECT_EQ(Complaint({"--gpus=4", "--gpus_per_worker=3"}),
            "4 GPUs of a machine cannot be divided into groups of 3; expected --gpus to be a "
            "multiple of --gpus_per_worker");
}

TEST_F(PlanRunTest, StagesSplitWorkersIntoProcessesWithPorts) {
  const auto plan = PlanWithJob({"--stages=2", "--workers=2"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->job.workers(), 2);
  std::set<std::string> addresses;
  for (const Place& worker : plan->hosts.workers) {
    EXPECT_EQ(worker.host, "");
    for (const std::string& address : StageAddresses(worker)) addresses.insert(address);
  }
  EXPECT_EQ(addresses.size(), 4u);
  EXPECT_EQ(Complaint({"--stages=0"}), "--stages=0: expected a whole number from 1 to 64");
  EXPECT_EQ(Complaint({"--stages=2", "--gpus=2"}),
            "--stages and --gpus exclude each other: each process of a worker computes on one "
            "device");
  EXPECT_EQ(Complaint({"--stages=2", "--target=loss:1"}),
            "--target and --target_every measure the whole model in one process, so they do not "
            "work with a model in stages; the workers evaluate its epochs");
  const std::string hosts = folder_.WriteFile("hosts", "server alpha\nworker beta:1,gamma:2\n");
  EXPECT_EQ(Complaint({"--insecure", "--hosts=" + hosts}),
            "the stages of a model on several machines require TLS; give them certificates with "
            "--certs=DIR ('psctl certs' makes them)");
}

TEST_F(PlanRunTest, RemoteProgramsNeedNotExistLocally) {
  std::filesystem::remove(worker_);
  const std::string hosts = folder_.WriteFile("hosts", "server localhost\nworker localhost\n");
  const auto plan = PlanWithJob({"--hosts=" + hosts, "--remote_binary_dir=/opt/torchps"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->launch.server_binary, "/opt/torchps/ps_server");
  EXPECT_EQ(plan->launch.worker_binary, "/opt/torchps/ps_worker");
  EXPECT_EQ(plan->job.workers(), 1);
}

TEST(RunFlagsTest, SuggestsTheFlagForAJobField) {
  const auto complaint = [](const std::string& typed) {
    const FlagTable table("psctl run", RunFlags(), "job", &RunFlagFor);
    return std::string(table.Parse({typed}).status().message());
  };
  EXPECT_EQ(complaint("--learning_rate=0.1"),
            "'psctl run' has no flag --learning_rate; did you mean --lr?");
  EXPECT_EQ(complaint("--batch-size"),
            "'psctl run' has no flag --batch-size; did you mean --batch_size?");
  EXPECT_EQ(complaint("--epoch=3"), "'psctl run' has no flag --epoch; did you mean --epochs?");
  EXPECT_EQ(complaint("--clip_norm=1"),
            "'psctl run' has no flag --clip_norm; did you mean --set=training.clip_norm=VALUE?");
}

}  // namespace
}  // namespace torchps
