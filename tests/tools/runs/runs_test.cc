#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/tools/testing.h"
#include "torchps/storage/run_folder.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/report/report_command.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/tools/run_folder/run_directory.h"
#include "torchps/tools/run_folder/run_list.h"
#include "torchps/tools/run_folder/run_record.h"
#include "torchps/tools/runs/compare_command.h"
#include "torchps/tools/runs/runs_command.h"

namespace torchps {
namespace {

namespace fs = std::filesystem;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

// Works in a directory whose folder runs/ contains the test's runs.
class RunsTest : public testing::Test {
 protected:
  RunsTest() : before_(fs::current_path()) {
    golden_report_ = ReadWholeFile("tests/tools/testdata/report.json");
    golden_text_ = ReadWholeFile("tests/tools/testdata/report.txt");
    fs::create_directory(folder_.path("runs"));
    fs::current_path(folder_.path(""));
  }
  ~RunsTest() override { fs::current_path(before_); }

  // Adds a run that ended `age` ago.
  RunRecord Ended(absl::Duration age, RunOutcome outcome = RunOutcome::kFinished,
                  const std::string& reason = "") {
    RunRecord record = RecordOfThisRun("");
    record.began = kNow - age - absl::Seconds(10);
    record.ended = kNow - age;
    record.outcome = outcome;
    record.exit_code = outcome == RunOutcome::kFinished ? 0 : 1;
    record.reason = reason;
    return record;
  }
  void AddRun(const std::string& name, const RunRecord& record) {
    ASSERT_EQ(PrepareRunDirectory("runs/" + name), absl::OkStatus());
    ASSERT_EQ(WriteRunRecord("runs/" + name, record), absl::OkStatus());
  }
  void AddReport(const std::string& name) {
    folder_.WriteFile("runs/" + name + "/report.json", golden_report_);
  }
  void AddJob(const std::string& name, const std::string& text) {
    ASSERT_EQ(KeepJob("runs/" + name, FromText<JobSpec>(text)), absl::OkStatus());
  }
  // Adds a run that counts as running until the returned lock is destroyed.
  std::unique_ptr<FileLock> AddRunning(const std::string& name,
                                       const std::vector<std::string>& servers) {
    RunRecord record = RecordOfThisRun("");
    record.began = kNow;
    record.servers = servers;
    AddRun(name, record);
    absl::StatusOr<std::unique_ptr<FileLock>> lock = LockRunDirectory("runs/" + name);
    EXPECT_TRUE(lock.ok()) << lock.status();
    return lock.ok() ? *std::move(lock) : nullptr;
  }

  using Command = int (*)(const FlagValues&, std::ostream&, std::ostream&);
  int Run(Command command, std::vector<FlagSpec> flags, const std::string& bare,
          const std::vector<std::string>& arguments) {
    const auto values = FlagTable("psctl", std::move(flags), bare).Parse(arguments);
    EXPECT_TRUE(values.ok()) << values.status();
    out_.str("");
    error_.str("");
    return command(*values, out_, error_);
  }
  int Runs(const std::vector<std::string>& arguments = {}) {
    return Run(&RunsCommand, RunsFlags(), "folder", arguments);
  }
  int Show(const std::vector<std::string>& arguments = {}) {
    return Run(&ShowCommand, ShowFlags(), "run", arguments);
  }
  int Compare(const std::vector<std::string>& arguments) {
    return Run(&CompareCommand, CompareFlags(), "run", arguments);
  }
  int Prune(PruneRequest request, const std::string& answer) {
    request.folder = "runs";
    request.has_terminal = true;
    std::istringstream in(answer);
    out_.str("");
    error_.str("");
    return PruneRuns(request, kNow, in, out_, error_);
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto runs = ListRuns("runs");
    for (const ListedRun& run : *runs) names.push_back(run.name);
    return names;
  }

  const TestFolder folder_;
  const fs::path before_;
  std::string golden_report_, golden_text_;
  std::ostringstream out_, error_;
};

TEST_F(RunsTest, ListsRunsWithTheirResultsNewestFirst) {
  AddRun("first", Ended(absl::Hours(3)));
  AddReport("first");
  AddRun("second", Ended(absl::Hours(2), RunOutcome::kFailed, "worker 0 exited\n  a bug"));
  RunRecord killed = Ended(absl::Hours(1));
  killed.ended.reset();
  killed.outcome.reset();
  killed.exit_code.reset();
  AddRun("third", killed);
  fs::create_directory("runs/no-run");
  const auto lock = AddRunning("fourth", {});
  ASSERT_EQ(Runs(), 0) << error_.str();
  const std::string table = out_.str();
  EXPECT_EQ(Names(), (std::vector<std::string>{"fourth", "third", "second", "first"}));
  for (const char* row :
       {"test accuracy", "failed: worker 0 exited; a bug", "killed: ", "running"}) {
    EXPECT_TRUE(absl::StrContains(table, row)) << row << "\n" << table;
  }
  EXPECT_FALSE(absl::StrContains(table, "no-run")) << table;
}

TEST_F(RunsTest, ListsRunsAsJson) {
  AddRun("a", Ended(absl::Hours(1)));
  AddReport("a");
  ASSERT_EQ(Runs({"--json"}), 0) << error_.str();
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json[0]["name"], "a");
  EXPECT_EQ(json[0]["state"], "finished");
  EXPECT_EQ(json[0]["seconds"], 10);
  EXPECT_TRUE(json[0]["result"]["accuracy"].is_number());
  EXPECT_GT(json[0]["bytes"], 0);
}

TEST_F(RunsTest, AcceptsAFolderWithoutRuns) {
  EXPECT_EQ(Runs(), 0);
  EXPECT_EQ(out_.str(), "there is no run in runs\n");
  EXPECT_EQ(Runs({"nowhere"}), 5);
  EXPECT_TRUE(absl::StrContains(error_.str(), "nowhere: No such file or directory"))
      << error_.str();
}

TEST_F(RunsTest, PruneKeepsTheNewestAndAsksFirst) {
  for (int hours = 1; hours <= 4; ++hours) {
    AddRun("run" + std::to_string(hours), Ended(absl::Hours(hours)));
  }
  PruneRequest request;
  request.keep = 2;
  EXPECT_EQ(Prune(request, "\n"), 1);
  EXPECT_TRUE(absl::StrContains(out_.str(), "Delete 2 runs, ")) << out_.str();
  EXPECT_EQ(Names().size(), 4u);
  EXPECT_EQ(Prune(request, "y\n"), 0) << error_.str();
  EXPECT_EQ(Names(), (std::vector<std::string>{"run1", "run2"}));
  EXPECT_FALSE(fs::exists("runs/run3"));
}

TEST_F(RunsTest, PruneDeletesOnlyOldRuns) {
  AddRun("young", Ended(absl::Hours(23)));
  AddRun("old", Ended(absl::Hours(25)));
  fs::create_directory("runs/no-run");
  const auto lock = AddRunning("running", {});
  RunRecord record = *ReadRunRecord("runs/running");
  record.began = kNow - absl::Hours(100);
  ASSERT_EQ(WriteRunRecord("runs/running", record), absl::OkStatus());
  fs::create_directory("elsewhere");
  AddRun("../elsewhere", Ended(absl::Hours(50)));
  fs::create_directory_symlink(fs::absolute("elsewhere"), "runs/link");
  PruneRequest request;
  request.older_than = absl::Hours(24);
  request.sure = true;
  EXPECT_EQ(Prune(request, ""), 0) << error_.str();
  EXPECT_EQ(Names(), (std::vector<std::string>{"young", "running"}));
  EXPECT_TRUE(fs::exists("runs/no-run"));
  EXPECT_TRUE(fs::exists("elsewhere/run.json"));
  EXPECT_EQ(Prune(request, ""), 0);
  EXPECT_EQ(out_.str(), "there is no run to delete in runs\n");
}

TEST_F(RunsTest, PruneRequiresExplicitLimits) {
  AddRun("a", Ended(absl::Hours(1)));
  EXPECT_EQ(Runs({"--prune"}), 2);
  EXPECT_EQ(error_.str(),
            "psctl: 'psctl runs --prune' needs either --older_than=DAYS or --keep=N\n");
  EXPECT_EQ(Runs({"--prune", "--keep=0", "--older_than=1"}), 2);
  EXPECT_EQ(Runs({"--prune", "--keep=-1"}), 2);
  PruneRequest request;
  request.folder = "runs";
  request.keep = 0;
  std::istringstream in("y\n");
  EXPECT_EQ(PruneRuns(request, kNow, in, out_, error_), 2);
  EXPECT_TRUE(absl::StrContains(error_.str(), "--yes deletes without asking"));
  EXPECT_EQ(Names().size(), 1u);
}

TEST_F(RunsTest, ShowsTheReportOfARun) {
  AddRun("a", Ended(absl::Hours(1)));
  AddReport("a");
  ASSERT_EQ(Show({"a"}), 0) << error_.str();
  EXPECT_TRUE(absl::StrContains(out_.str(), golden_text_)) << out_.str();
  ASSERT_EQ(Show({"runs/a/"}), 0) << error_.str();
  ASSERT_EQ(Show(), 0) << error_.str();
  ASSERT_EQ(Show({"a", "--json"}), 0) << error_.str();
  EXPECT_EQ(out_.str(), golden_report_);
}

TEST_F(RunsTest, ShowExplainsAMissingReport) {
  AddRun("a", Ended(absl::Hours(1), RunOutcome::kFailed, "server 0 exited with code 6"));
  EXPECT_EQ(Show({"a"}), 5);
  EXPECT_EQ(error_.str(),
            "psctl: a has no report: failed: server 0 exited with code 6\nlogs: runs/a/logs\n");
  EXPECT_EQ(Show({"b"}), 5);
  EXPECT_TRUE(absl::StrContains(error_.str(), "there is no run b: ")) << error_.str();
  EXPECT_TRUE(absl::StrContains(error_.str(), "the newest there: a")) << error_.str();
  const auto lock = AddRunning("c", {});
  EXPECT_EQ(Show({"c"}), 5);
  EXPECT_EQ(error_.str(),
            "psctl: c has no report: it is running; 'psctl status --run=c' shows its progress\n");
}

TEST_F(RunsTest, ComparesJobsResultsAndEvaluations) {
  AddRun("a", Ended(absl::Hours(2)));
  AddReport("a");
  AddJob("a", "name: 'x' training { epochs: 2 }");
  AddRun("b", Ended(absl::Hours(1), RunOutcome::kStopped, "interrupted"));
  AddJob("b", "name: 'x' training { epochs: 3 }");
  ASSERT_EQ(Compare({"a", "b"}), 0) << error_.str();
  const std::string text = out_.str();
  for (const char* part : {"training.epochs  2  3\n", "stopped: interrupted",
                           "epoch  test accuracy A  test accuracy B  test loss A  test loss B\n"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part << "\n" << text;
  }
  ASSERT_EQ(Compare({"b", "b"}), 0) << error_.str();
  EXPECT_TRUE(absl::StrContains(out_.str(), "the jobs are the same\n"));
  EXPECT_EQ(Compare({"a"}), 2);
  EXPECT_EQ(error_.str(),
            "psctl: 'psctl compare' needs two runs, but got 1; 'psctl runs' lists them\n");
}

TEST_F(RunsTest, FindsTheOnlyRunningRun) {
  AddRun("ended", Ended(absl::Hours(1)));
  const absl::Status none = FindRunningRun("").status();
  EXPECT_TRUE(absl::IsUnavailable(none)) << none;
  EXPECT_TRUE(absl::StrContains(none.message(), "runs is running; --run=DIR names")) << none;
  auto first = AddRunning("first", {"127.0.0.1:4711"});
  EXPECT_EQ(FindRunningRun("")->record.servers, std::vector<std::string>{"127.0.0.1:4711"});
  auto second = AddRunning("second", {"127.0.0.1:4712"});
  EXPECT_EQ(FindRunningRun("").status(),
            absl::InvalidArgumentError("2 runs are running: second, first; name one, as "
                                       "--run=second"));
  EXPECT_EQ(FindRunningRun("second")->name, "second");
  EXPECT_EQ(
      FindRunningRun("ended").status(),
      absl::UnavailableError("run ended is not running; 'psctl show ended' shows its report"));
  first.reset();
  EXPECT_EQ(FindRunningRun("")->name, "second");
}

TEST_F(RunsTest, ExplainsUnreachableRuns) {
  const auto lock = AddRunning("a", {});
  EXPECT_EQ(FindRunningRun("").status(),
            absl::UnavailableError("the servers of run a do not listen yet; try again"));
  RunRecord record = *ReadRunRecord("runs/a");
  record.host = "elsewhere.example";
  ASSERT_EQ(WriteRunRecord("runs/a", record), absl::OkStatus());
  EXPECT_TRUE(absl::StrContains(FindRunningRun("").status().message(), "no run in "));
  EXPECT_TRUE(
      absl::StrContains(FindRunningRun("a").status().message(), "runs on elsewhere.example"));
}

TEST_F(RunsTest, ConnectsToTheRunningRun) {
  const auto lock = AddRunning("a", {"127.0.0.1:4711", "127.0.0.1:4712"});
  const FlagTable table("psctl status", ClusterFlags(), "run");
  for (const auto& arguments : {std::vector<std::string>{}, {"a"}, {"--run=runs/a"}}) {
    const auto cluster = ConnectByFlags(*table.Parse(arguments), "status");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_EQ((*cluster)->addresses(),
              (std::vector<std::string>{"127.0.0.1:4711", "127.0.0.1:4712"}));
  }
  EXPECT_EQ(ConnectByFlags(*table.Parse({"a", "--servers=127.0.0.1:1"}), "status").status(),
            absl::InvalidArgumentError(
                "'psctl status' takes either --servers or --run; both name a cluster"));
}

TEST_F(RunsTest, ReadsBackAWrittenRecord) {
  RunRecord record = Ended(absl::Hours(1), RunOutcome::kStopped, "interrupted");
  record.servers = {"alpha:7000"};
  record.worker_hosts = {"beta", "beta"};
  record.data = "/data";
  record.certs = "/certs";
  record.report = "/report.json";
  AddRun("a", record);
  const absl::StatusOr<RunRecord> read = ReadRunRecord("runs/a");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->began, record.began);
  EXPECT_EQ(read->ended, record.ended);
  EXPECT_EQ(read->outcome, RunOutcome::kStopped);
  EXPECT_EQ(read->reason, "interrupted");
  EXPECT_EQ(read->servers, record.servers);
  EXPECT_EQ(read->worker_hosts, record.worker_hosts);
  EXPECT_EQ(read->data, "/data");
  EXPECT_EQ(read->certs, "/certs");
  EXPECT_EQ(read->report, "/report.json");
}

TEST_F(RunsTest, ErrorNamesARunsFolderThatCannotBeMade) {
  fs::remove("runs");
  folder_.WriteFile("runs", "");
  const absl::Status made = MakeRunFolder("job", kNow).status();
  EXPECT_TRUE(absl::StrContains(made.message(), "/runs: ")) << made;
  EXPECT_TRUE(absl::StrContains(made.message(), "name another folder with --dir")) << made;
}

}  // namespace
}  // namespace torchps
