#include "torchps/tools/run/cluster_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/manual_clock.h"
#include "tests/tools/testing.h"

namespace torchps {
namespace {

// Server script that exits cleanly on request, like ps_server.
constexpr char kServer[] =
    "trap 'exit 0' TERM\n"
    "echo torchps_server ready address=127.0.0.1:4712 pid=$$\n"
    "while read -r line; do :; done\n";

// Worker script that reports one step and its end, as after a short training.
constexpr char kWorker[] =
    "for word; do case $word in --slot=*) slot=${word#--slot=};; esac; done\n"
    "echo torchps_worker progress slot=$slot epoch=1 step=20 loss=0.5 accuracy=-"
    " samples_per_s=1234 wait_share=0.04\n"
    "[ $slot = 0 ] && echo torchps_worker evaluation slot=0 epoch=1 loss=0.75 accuracy=0.8"
    " samples=200\n"
    "echo torchps_worker done slot=$slot pushes=20\n";

// Runs two servers and two workers that are shell scripts. The fake cluster provides the report.
class ClusterRunTest : public testing::Test {
 protected:
  ClusterRunTest() {
    options_.job = FromTestdata<JobStatus>("job_status.textproto").job();
    options_.launch.job_file = "job.textproto";
    options_.launch.threads = 1;
    options_.hosts.servers.resize(2);
    options_.hosts.workers.resize(2);
    SetServer(kServer);
    SetWorker(kWorker);
  }

  void SetServer(const std::string& script) {
    options_.launch.server_binary = folder_.WriteScript("ps_server", script);
  }
  void SetWorker(const std::string& script) {
    options_.launch.worker_binary = folder_.WriteScript("ps_worker", script);
  }

  int Run(int interrupt_fd = -1) {
    const auto connect = [this](std::vector<std::string> addresses) {
      asked_ = std::move(addresses);
      auto cluster = std::make_unique<FakeCluster>();
      prepare_(*cluster);
      return cluster;
    };
    options_.restarts.first_delay = absl::ZeroDuration();
    // The clock stands still, so BufferedOutput holds a program's messages until the program has
    // ended, as on a slow machine.
    const ManualClock clock;
    ClusterRun run(options_, connect, out_, error_, clock, interrupt_fd);
    const int code = run.Run();
    outcome_ = run.outcome();
    return code;
  }

  void ExpectOut(const std::string& text) {
    EXPECT_NE(out_.str().find(text), std::string::npos) << out_.str() << error_.str();
  }

  const TestFolder folder_;
  ClusterRun::Options options_;
  std::function<void(FakeCluster&)> prepare_ = [](FakeCluster&) {};
  std::vector<std::string> asked_;
  absl::Status outcome_;
  std::ostringstream out_;
  std::ostringstream error_;
};

TEST_F(ClusterRunTest, CompleteRunPrintsTheReport) {
  options_.report_file = folder_.path("report.json");
  std::vector<std::string> told;
  options_.on_servers = [&](const std::vector<std::string>& addresses) { told = addresses; };
  EXPECT_EQ(Run(), 0) << error_.str();
  EXPECT_EQ(error_.str(), "");
  EXPECT_EQ(outcome_, absl::OkStatus());
  EXPECT_EQ(told, (std::vector<std::string>{"127.0.0.1:4712", "127.0.0.1:4712"}));
  ExpectOut(
      "digits-mlp: mlp on digits, 2 epochs, asynchronous, each push alone, at most 4 steps "
      "ahead\n");
  ExpectOut("2 servers, 2 workers with 1 thread each\n");
  ExpectOut(
      "worker 1   epoch 1/2   step     20   loss 0.5000      1,234 samples/s   waiting   4 %");
  ExpectOut("epoch 1/2   test accuracy 80.00 %   test loss 0.7500   on 200 samples\n");
  ExpectOut("worker 0   done after 20 steps\n");
  ExpectOut("digits-mlp finished: test accuracy 93.50 % after 2 epochs\n");
  EXPECT_EQ(ReadWholeFile(options_.report_file), ExpectedReport());
}

// The beginning of a worker script. The evaluator reports improving metrics and ends here. Another
// worker continues with the rest of the script.
constexpr char kEvaluatorOrWorker[] =
    "measured() { echo "
    "\"{\\\"seconds\\\":$1,\\\"samples_used\\\":$2,\\\"pushes\\\":$3,\\\"samples\\\":200,"
    "\\\"loss\\\":0.75,\\\"metrics\\\":{\\\"accuracy\\\":$4},\\\"lower_is_better\\\":[\\\"loss\\\"]"
    "}\"; }\n"
    "for word; do case $word in\n"
    "--evaluate_every=*) measured 1.5 320 10 0.5; measured 12.25 3200 100 0.75; exit 0;;\n"
    "esac; done\n";

TEST_F(ClusterRunTest, RecordsTargetsWhenFirstReached) {
  SetWorker(std::string(kEvaluatorOrWorker) + kWorker);
  options_.launch.evaluate_every = "5s";
  options_.targets = *Targets::Parse({"accuracy:0.7", "accuracy:0.98"});
  options_.report_file = folder_.path("report.json");
  EXPECT_EQ(Run(), 0) << error_.str();
  ExpectOut("target accuracy 0.7: after 12.2 s, 3,200 samples and 100 pushes\n");
  ExpectOut("evaluator  after 1.50 s   test accuracy 50.00 %   test loss 0.75\n");
  ExpectOut("target accuracy 0.98: not met\n");
  const std::string json = ReadWholeFile(options_.report_file);
  EXPECT_NE(json.find("\"targets\": [\n"
                      "    {\n"
                      "      \"metric\": \"accuracy\",\n"
                      "      \"value\": 0.7,\n"
                      "      \"seconds\": 12.25,\n"
                      "      \"samples\": 3200,\n"
                      "      \"pushes\": 100\n"
                      "    },\n"
                      "    {\n"
                      "      \"metric\": \"accuracy\",\n"
                      "      \"value\": 0.98\n"
                      "    }\n"
                      "  ]"),
            std::string::npos)
      << json;
}

TEST_F(ClusterRunTest, ATargetThatIsNotMeasuredEndsTheRun) {
  SetWorker(std::string(kEvaluatorOrWorker) + "exec cat\n");
  options_.launch.evaluate_every = "5s";
  options_.targets = *Targets::Parse({"acuracy:0.7"});
  EXPECT_EQ(Run(), 2);
  EXPECT_EQ(
      error_.str(),
      "psctl: --target=acuracy:0.7: the program does not measure that; did you mean accuracy? "
      "it measures accuracy, "
      "loss\n");
}

TEST_F(ClusterRunTest, StopsWhenItsOutputIsClosed) {
  SetWorker("exec cat\n");
  out_.setstate(std::ios::badbit);
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(), "psctl: standard output was closed; everything has been stopped\n");
}

TEST_F(ClusterRunTest, RequestsTheReportFromTheServersAddresses) {
  EXPECT_EQ(Run(), 0) << error_.str();
  EXPECT_EQ(asked_, (std::vector<std::string>{"127.0.0.1:4712", "127.0.0.1:4712"}));
}

TEST_F(ClusterRunTest, FailingWorkerSetsTheRunsExitCode) {
  SetWorker(
      "for word; do case $word in --slot=*) slot=${word#--slot=};; esac; done\n"
      "[ $slot = 1 ] && { echo 'ps_worker: /data/x: no such file' >&2; exit 5; }\n"
      "exec cat\n");
  EXPECT_EQ(Run(), 5);
  EXPECT_EQ(error_.str(),
            "psctl: worker 1 exited with code 5 (a data file is missing, truncated or damaged)\n"
            "  /data/x: no such file\n");
  EXPECT_EQ(out_.str().find("no such file"), std::string::npos) << "said twice";
}

// Without this, the report would present results of the previous run as results of this run.
TEST_F(ClusterRunTest, RejectedResumeWritesNoReport) {
  options_.launch.resume = true;
  options_.report_file = folder_.path("report.json");
  bool accepted = false;
  options_.on_accepted = [&accepted] { accepted = true; };
  SetWorker("echo 'ps_worker: a resumed job cannot change seed' >&2; exit 4\n");
  EXPECT_EQ(Run(), 4);
  EXPECT_FALSE(accepted);
  EXPECT_EQ(out_.str().find("finished"), std::string::npos) << out_.str();
  EXPECT_FALSE(std::filesystem::exists(options_.report_file));

  SetWorker(kWorker);
  EXPECT_EQ(Run(), 0) << error_.str();
  EXPECT_TRUE(accepted);
  ExpectOut("digits-mlp finished");
  EXPECT_EQ(out_.str().find("had already ended"), std::string::npos);
  EXPECT_NE(ReadWholeFile(options_.report_file), "");
}

TEST_F(ClusterRunTest, ResumingAFinishedJobExplainsHowToContinue) {
  options_.launch.resume = true;
  SetWorker("echo torchps_worker done slot=0 pushes=0\n");
  EXPECT_EQ(Run(), 0) << error_.str();
  ExpectOut(
      "\nthe job had already ended, so there was nothing to train; a larger training.epochs "
      "continues it\n");
}

TEST_F(ClusterRunTest, OnlyARestartAfterAKillReportsThePredecessorsDeath) {
  options_.hosts.workers.resize(1);
  const std::string incarnations = folder_.path("lives");
  // The worker is killed first, then loses the slot, then succeeds.
  SetWorker("echo \"$@\" >> " + incarnations + "\ncase $(wc -l < " + incarnations +
            ") in 1) kill -KILL $$;; 2) exit 7;; esac\n" + kWorker);
  EXPECT_EQ(Run(), 0) << error_.str();
  const std::vector<std::string> words =
      absl::StrSplit(ReadWholeFile(incarnations), '\n', absl::SkipEmpty());
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[0].find("--predecessor_died"), std::string::npos);
  EXPECT_NE(words[1].find("--predecessor_died"), std::string::npos);
  EXPECT_EQ(words[2].find("--predecessor_died"), std::string::npos);
}

TEST_F(ClusterRunTest, RestartsAKilledWorker) {
  const std::string once = folder_.path("once");
  options_.report_file = folder_.path("report.json");
  options_.hosts.workers.resize(1);
  SetWorker("[ -e " + once + " ] || { touch " + once +
            "; echo 'ps_worker: last words' >&2; kill -KILL $$; }\n" + kWorker);
  EXPECT_EQ(Run(), 0) << error_.str();
  ExpectOut(
      "worker 0: last words\n"
      "worker 0 was ended by signal 9 (Killed); restarting it (restart 1)\n");
  ExpectOut("restarted after a crash: 1 worker\n");
  EXPECT_NE(ReadWholeFile(options_.report_file).find("\"restarts\": {\n    \"servers\": 0,"),
            std::string::npos);
}

TEST_F(ClusterRunTest, AWorkerThatIsKilledRepeatedlyFailsTheRun) {
  options_.hosts.workers.resize(1);
  options_.restarts.most = 2;
  SetWorker("echo x >> " + folder_.path("lives") + "; kill -KILL $$\n");
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(),
            "psctl: worker 0 was ended by signal 9 (Killed), as it did 2 times within 10m before, "
            "so it is not restarted\n");
  EXPECT_EQ(ReadWholeFile(folder_.path("lives")), "x\nx\nx\n");
}

TEST_F(ClusterRunTest, RestartsAWorkerThatLostItsSlot) {
  const std::string once = folder_.path("once");
  options_.hosts.workers.resize(1);
  SetWorker("[ -e " + once + " ] || { touch " + once + "; exit 7; }\n" + kWorker);
  EXPECT_EQ(Run(), 0) << error_.str();
  ExpectOut("worker 0 exited with code 7 (it lost its slot); restarting it");
}

TEST_F(ClusterRunTest, DoesNotRestartIfDisabled) {
  options_.restarts.most = 0;
  SetWorker("kill -KILL $$\n");
  EXPECT_EQ(Run(), 1);
  EXPECT_NE(error_.str().find("was ended by signal 9 (Killed)\n"), std::string::npos);
}

// Runs one server, whose script records its arguments and its process id.
class RestartedServerTest : public ClusterRunTest {
 protected:
  RestartedServerTest() {
    options_.hosts.servers.resize(1);
    options_.hosts.workers.resize(1);
    options_.launch.dir = folder_.path("state");
    SetServer(
        "trap 'exit 0' TERM\n"
        "echo \"$@\" >> " +
        folder_.path("lives") + "\necho $$ > " + folder_.path("server.pid") +
        "\necho torchps_server ready address=127.0.0.1:4712 pid=$$\n"
        "while read -r line; do :; done\n");
    // The worker kills the server, and ends after the server's second start.
    SetWorker(
        "echo torchps_worker progress slot=0 epoch=1 step=20\n"
        "kill -KILL $(cat " +
        folder_.path("server.pid") +
        ")\n"
        "until [ $(wc -l < " +
        folder_.path("lives") + ") = 2 ]; do :; done\n");
  }
};

TEST_F(RestartedServerTest, ARestartedServerKeepsItsAddressAndDirectory) {
  options_.launch.resume = true;
  EXPECT_EQ(Run(), 0) << error_.str();
  const std::string directory = "--dir=" + folder_.path("state");
  // --resume continues the previous job only at the first start. Restarts continue this run's job.
  EXPECT_EQ(ReadWholeFile(folder_.path("lives")),
            "--listen=127.0.0.1:0 --exit_with_parent " + directory +
                " --resume\n"
                "--listen=127.0.0.1:4712 --exit_with_parent " +
                directory + "\n");
  ExpectOut("server 0 was ended by signal 9 (Killed); restarting it at 127.0.0.1:4712 (restart 1)");
  ExpectOut("restarted after a crash: 1 server\n");
}

TEST_F(RestartedServerTest, AServerWithoutADirectoryIsNotRestarted) {
  options_.launch.dir.clear();
  SetWorker("kill -KILL $(cat " + folder_.path("server.pid") + "); exec cat\n");
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(), "psctl: server 0 was ended by signal 9 (Killed)\n");
}

// Makes one server lose its disk when training begins, and records the events.
class LossOfADisk final : public FaultPlan {
 public:
  explicit LossOfADisk(int server) : due_{{Fault::Kind::kLoseDisk, {true, server}}} {}
  absl::Duration NextAt() const override {
    return due_.empty() ? absl::InfiniteDuration() : absl::ZeroDuration();
  }
  std::vector<Fault> Take(absl::Duration) override { return std::exchange(due_, {}); }
  void OnFault(const Fault& fault, absl::Duration) override {
    heard_ += absl::StrCat(fault.part.text(), " is hit; ");
  }
  void OnDeath(const PartName& part, absl::Duration) override {
    heard_ += absl::StrCat(part.text(), " dies; ");
  }
  void OnReturn(const PartName& part, const std::string&, absl::Duration) override {
    heard_ += absl::StrCat(part.text(), " is there; ");
  }
  const std::string& heard() const { return heard_; }

 private:
  std::vector<Fault> due_;
  std::string heard_;
};

TEST_F(ClusterRunTest, ServerWithALostDiskRestoresFromCopies) {
  options_.hosts.workers.resize(1);
  options_.launch.dir = folder_.path("state");
  options_.launch.disks_apart = true;
  for (const char* disk : {"state/disk-0", "state/disk-1"}) {
    std::filesystem::create_directories(folder_.path(disk));
    folder_.WriteFile(std::string(disk) + "/file", "kept");
  }
  SetServer(
      "for word; do case $word in --dir=*) echo \"$*\" >> ${word#--dir=}.lives;; esac; done\n" +
      std::string(kServer));
  // The worker ends after the second start of server 0.
  SetWorker(
      "echo torchps_worker progress slot=0 epoch=1 step=20\n"
      "until [ $(wc -l < " +
      folder_.path("state/disk-0.lives") + ") = 2 ]; do :; done\n");
  LossOfADisk faults(0);
  options_.faults = &faults;
  EXPECT_EQ(Run(), 0) << error_.str();
  EXPECT_FALSE(std::filesystem::exists(folder_.path("state/disk-0")));
  EXPECT_TRUE(std::filesystem::exists(folder_.path("state/disk-1/file")));
  const std::string began = "--exit_with_parent --dir=" + folder_.path("state/disk-0");
  EXPECT_EQ(ReadWholeFile(folder_.path("state/disk-0.lives")),
            "--listen=127.0.0.1:0 " + began + "\n--listen=127.0.0.1:4712 " + began +
                " --copies_at=127.0.0.1:4712\n");
  EXPECT_NE(faults.heard().find("server 0 is hit; server 0 dies; server 0 is there; "),
            std::string::npos)
      << faults.heard();
}

TEST_F(ClusterRunTest, BlamesTheDeadServerInsteadOfItsWorkers) {
  // The server writes the process id to a file, so that the worker can kill it.
  SetServer("echo $$ > " + folder_.path("server.pid") +
            "\necho torchps_server ready address=127.0.0.1:4711 pid=$$\n"
            "while read -r line; do :; done\n");
  options_.hosts.servers.resize(1);
  SetWorker("kill -ABRT $(cat " + folder_.path("server.pid") +
            ")\n"
            "echo 'ps_worker: waiting for server 0' >&2\n"
            "exec cat\n");
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(), "psctl: server 0 was ended by signal 6 (Aborted)\n");
}

TEST_F(ClusterRunTest, ExplainsAServerStoppedByRequest) {
  SetServer("echo $$ > " + folder_.path("server.pid") + "\n" + kServer);
  options_.hosts.servers.resize(1);
  SetWorker("kill -TERM $(cat " + folder_.path("server.pid") + ")\nexec cat\n");
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(
      error_.str(),
      "psctl: server 0 ended before the job: it was asked to stop, for example by 'psctl stop'\n");
  EXPECT_TRUE(absl::IsCancelled(outcome_)) << outcome_;
}

TEST_F(ClusterRunTest, ReportsWriteErrorAlongWithTheRunsFailure) {
  options_.report_file = folder_.path("none/report.json");
  SetWorker("exit 5\n");
  EXPECT_EQ(Run(), 5);
  EXPECT_EQ(error_.str().find("psctl: cannot "), 0u) << error_.str();
  EXPECT_NE(error_.str().find("none/report.json"), std::string::npos) << error_.str();
  EXPECT_NE(error_.str().find("exited with code 5"), std::string::npos) << error_.str();
}

TEST_F(ClusterRunTest, ServerThatCannotListenEndsTheRun) {
  options_.hosts.servers.resize(1);
  SetServer("echo 'ps_server: 127.0.0.1:80: address in use' >&2; exit 6\n");
  SetWorker("touch " + folder_.path("started") + "\n");
  EXPECT_EQ(Run(), 6);
  EXPECT_EQ(error_.str(),
            "psctl: server 0 exited with code 6 (the port to listen on is taken)\n"
            "  127.0.0.1:80: address in use\n");
  EXPECT_FALSE(std::filesystem::exists(folder_.path("started")));
}

TEST_F(ClusterRunTest, GivesUpOnASilentServer) {
  SetServer("trap 'exit 0' TERM; while read -r line; do :; done\n");
  options_.start_patience = absl::ZeroDuration();
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(), "psctl: server 0 took longer than 0 to start listening\n");
}

TEST_F(ClusterRunTest, InterruptStopsAllProcessesAndFails) {
  SetWorker("trap 'exit 1' TERM; echo up > " + folder_.path("worker.$$") +
            "; while read -r line; do :; done\n");
  int wake[2];
  ASSERT_EQ(pipe(wake), 0);
  ASSERT_EQ(write(wake[1], "x", 1), 1);
  EXPECT_EQ(Run(wake[0]), 1);
  EXPECT_EQ(error_.str(), "psctl: interrupted; everything has been stopped\n");
  EXPECT_TRUE(absl::IsCancelled(outcome_)) << outcome_;
  close(wake[0]);
  close(wake[1]);
}

TEST_F(ClusterRunTest, ShowsOtherOutputWithTheProgramsName) {
  SetWorker("echo hello from my model; echo torchps_worker stopped: terminated\n");
  options_.hosts.workers.resize(1);
  EXPECT_EQ(Run(), 0) << error_.str();
  ExpectOut("worker 0: hello from my model\n");
  EXPECT_EQ(out_.str().find("stopped: terminated"), std::string::npos) << out_.str();
}

TEST_F(ClusterRunTest, FailsIfTheWorkersEndBeforeTheJob) {
  prepare_ = [](FakeCluster& cluster) { cluster.job->set_phase(JobStatus::RUNNING); };
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(), "psctl: all workers ended, but the job is still running\n");
}

TEST_F(ClusterRunTest, ErrorNamesACoordinatorThatDoesNotAnswer) {
  prepare_ = [](FakeCluster& cluster) {
    cluster.job = absl::UnavailableError("connection refused");
  };
  EXPECT_EQ(Run(), 3);
  EXPECT_EQ(error_.str(), "psctl: no report: server 0 at 127.0.0.1:4712: connection refused\n");
}

TEST_F(ClusterRunTest, KillsAndReportsAnUnresponsiveServer) {
  SetServer(
      "trap '' TERM\n"
      "echo torchps_server ready address=127.0.0.1:4711 pid=$$\n"
      "while read -r line; do :; done\n");
  options_.hosts.servers.resize(1);
  options_.stop_grace = absl::ZeroDuration();
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(error_.str(),
            "psctl: server 0 did not stop cleanly: it was ended by signal 9 (Killed)\n");
}

TEST_F(ClusterRunTest, RunsRemoteProgramsThroughSsh) {
  // Records the host and the command, and runs the command locally.
  const std::string ssh = folder_.WriteScript(
      "ssh", "echo \"$1\" >> " + folder_.path("hosts") + "\nexec sh -c \"$2\"\n");
  SetServer(
      "echo torchps_server ready address=0.0.0.0:4711 pid=$$\n"
      "while read -r line; do :; done\n");
  SetWorker("cat <&3 > " + folder_.path("job") + "\n");
  options_.launch.ssh = {ssh};
  options_.launch.job_text = "name: \"far $HOME 'away'\"\n";
  options_.hosts.servers = {{"alpha", 0}};
  options_.hosts.workers = {{"beta", 0}};
  EXPECT_EQ(Run(), 0) << error_.str();
  EXPECT_EQ(ReadWholeFile(folder_.path("hosts")), "alpha\nbeta\n");
  EXPECT_EQ(asked_, std::vector<std::string>{"alpha:4711"});
}

}  // namespace
}  // namespace torchps
