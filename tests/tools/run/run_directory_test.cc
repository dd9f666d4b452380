#include "torchps/tools/run_folder/run_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "tests/tools/testing.h"
#include "torchps/common/process/version.h"
#include "torchps/tools/run_folder/run_record.h"

namespace torchps {
namespace {

class RunDirectoryTest : public testing::Test {
 protected:
  std::string Complaint(bool resume) {
    return std::string(CheckRunDirectory(folder_.path("run"), resume).message());
  }
  void Add(const std::string& file) {
    const std::filesystem::path path = folder_.path("run/" + file);
    std::filesystem::create_directories(path.parent_path());
    folder_.WriteFile("run/" + file, "");
  }
  std::string Dir() { return "--dir=" + folder_.path("run"); }

  const TestFolder folder_;
};

TEST_F(RunDirectoryTest, AcceptsAnEmptyOrMissingDirectory) {
  EXPECT_EQ(Complaint(false), "");
  Add("server-0.lock");
  EXPECT_EQ(Complaint(false), "");
}

TEST_F(RunDirectoryTest, RefusesCheckpointsOfAJobUnlessResumed) {
  Add("checkpoint-000000000009/MANIFEST.json");
  Add("checkpoint-000000000012/MANIFEST.json");
  Add("checkpoint-000000000013/server-0-of-1.safetensors");
  EXPECT_EQ(Complaint(false), Dir() +
                                  " holds 2 checkpoints of a job, the newest number 12; --resume "
                                  "continues that job; otherwise name an empty directory");
  EXPECT_EQ(Complaint(true), "");
}

TEST_F(RunDirectoryTest, RefusesADirectoryWithOtherFilesByName) {
  Add("thesis.tex");
  Add("photo.jpg");
  EXPECT_EQ(Complaint(false), Dir() + " holds 'photo.jpg' and 1 more; name an empty directory");
}

TEST_F(RunDirectoryTest, ResumesFromALogAlone) {
  Add("log-0-of-2/00000000000000000001.log");
  EXPECT_EQ(Complaint(true), "");
  EXPECT_NE(Complaint(false), "");
}

TEST_F(RunDirectoryTest, RefusesToResumeWithoutState) {
  EXPECT_EQ(Complaint(true), "--resume: " + folder_.path("run") +
                                 " holds nothing, so there is nothing to resume; without --resume "
                                 "the job starts from the beginning");
  Add("coordinator.state");
  Add("coordinator.recent");
  EXPECT_NE(Complaint(true), "");
  EXPECT_EQ(
      Complaint(false),
      Dir() + " holds a job's coordinator, but no checkpoint; empty it, or name another directory");
  EXPECT_EQ(Complaint(true),
            "--resume: " + folder_.path("run") +
                " holds a job's coordinator, but no checkpoint, so there is nothing to resume; "
                "without --resume the job starts from the beginning, in an empty directory");
}

TEST_F(RunDirectoryTest, RefusesASecondRunInTheSameDirectory) {
  const std::string run = folder_.path("run");
  ASSERT_EQ(PrepareRunDirectory(run), absl::OkStatus());
  absl::StatusOr<std::unique_ptr<FileLock>> first = LockRunDirectory(run);
  ASSERT_EQ(first.status(), absl::OkStatus());
  const absl::Status second = LockRunDirectory(run).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second));
  EXPECT_EQ(std::string(second.message()).find("another run uses " + run), 0u) << second;
  first->reset();
  EXPECT_EQ(LockRunDirectory(run).status(), absl::OkStatus());
  EXPECT_EQ(Complaint(false), "") << "each run writes the lock file";
  std::filesystem::remove(run + "/state/run.lock");
  std::filesystem::create_directory(run + "/state/run.lock");
  EXPECT_EQ(LockRunDirectory(run).status(), absl::OkStatus()) << "the lock is not held";
}

TEST_F(RunDirectoryTest, FindsCheckpointsInTheStateFolder) {
  ASSERT_EQ(PrepareRunDirectory(folder_.path("run")), absl::OkStatus());
  EXPECT_EQ(Complaint(false), "") << "an empty state folder";
  Add("state/checkpoint-000000000003/MANIFEST.json");
  EXPECT_EQ(Complaint(true), "");
  EXPECT_EQ(Complaint(false), Dir() +
                                  " holds 1 checkpoint of a job, number 3; --resume continues that "
                                  "job; otherwise name an empty directory");
}

TEST_F(RunDirectoryTest, AFolderOfAnEarlierVersionGetsNoStateFolder) {
  Add("coordinator.state");
  ASSERT_EQ(PrepareRunDirectory(folder_.path("run")), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run/state")));
  ASSERT_EQ(LockRunDirectory(folder_.path("run")).status(), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(folder_.path("run/run.lock")));
}

TEST_F(RunDirectoryTest, ErrorNamesTheRunThatUsesTheDirectory) {
  Add("coordinator.state");
  const absl::StatusOr<std::unique_ptr<FileLock>> lock = LockRunDirectory(folder_.path("run"));
  ASSERT_EQ(lock.status(), absl::OkStatus());
  EXPECT_EQ(Complaint(false),
            Dir() + ": another run uses it; wait for that run to end, or name another directory");
}

TEST_F(RunDirectoryTest, DirectoryIsReusableAfterStateIsRemoved) {
  const std::vector<std::string> kept = {"run.json",          "report.json",
                                         "job.textproto",     "job.written.textproto",
                                         "logs/server-0.log", "run.lock"};
  for (const std::string& file : kept) Add(file);
  for (const char* file : {"checkpoint-000000000001/MANIFEST.json", "coordinator.state",
                           "log-0-of-2/1.log", "server-1.place", "server-0.lock",
                           "model.safetensors", "state/checkpoint-000000000002/MANIFEST.json",
                           "state/coordinator.state", "state/constants.safetensors"}) {
    Add(file);
  }
  RemoveState(folder_.path("run"));
  EXPECT_EQ(Complaint(false), "");
  EXPECT_EQ(ResumeCommand(folder_.path("run"), ""), "");
  EXPECT_EQ(DescribeModel(folder_.path("run"), absl::InfinitePast()), "");
  for (const std::string& file : kept) {
    EXPECT_TRUE(std::filesystem::exists(folder_.path("run/" + file))) << file;
  }
}

TEST_F(RunDirectoryTest, ReadsTheStoredJob) {
  JobSpec job;
  job.set_name("a");
  ASSERT_TRUE(PrepareRunDirectory(folder_.path("run")).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadKeptJob(folder_.path("run")).status()));
  ASSERT_TRUE(KeepJob(folder_.path("run"), job).ok());
  EXPECT_EQ(ReadKeptJob(folder_.path("run"))->name(), "a");
  folder_.WriteFile("run/job.textproto", "{");
  EXPECT_TRUE(absl::IsDataLoss(ReadKeptJob(folder_.path("run")).status()));
}

TEST_F(RunDirectoryTest, RejectsAFileInPlaceOfTheDirectory) {
  folder_.WriteFile("run", "");
  EXPECT_EQ(Complaint(false), Dir() + " is not a directory");
}

TEST_F(RunDirectoryTest, AcceptsFilesThatEachRunWrites) {
  JobSpec job;
  job.set_name("line");
  ASSERT_TRUE(PrepareRunDirectory(folder_.path("run")).ok());
  ASSERT_TRUE(KeepJob(folder_.path("run"), job).ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder_.path("run/logs")));
  std::ifstream text(folder_.path("run/job.textproto"));
  std::string line;
  std::getline(text, line);
  EXPECT_EQ(line, "name: \"line\"");
  // If psctl is killed while it writes, it leaves these files.
  Add("job.textproto.tmp");
  Add("report.json.4711.tmp");
  // If a server is killed while it tests whether it can write, it leaves this file.
  Add("writable.tmp");
  EXPECT_EQ(Complaint(false), "");
}

TEST_F(RunDirectoryTest, RemovesTheFolderOfAnUnusedRun) {
  const std::string dir = folder_.path("run");
  const auto prepare = [&] {
    JobSpec job;
    ASSERT_TRUE(PrepareRunDirectory(dir).ok());
    ASSERT_TRUE(KeepJob(dir, job).ok());
    Add("state/coordinator.lock");
    Add("logs/server-0.log");
  };
  prepare();
  RemoveUnusedRun(dir, /*told=*/false);
  EXPECT_FALSE(std::filesystem::exists(dir));
  prepare();
  folder_.WriteFile("run/logs/worker-0.log", "a stack of calls\n");
  RemoveUnusedRun(dir, /*told=*/false);
  EXPECT_TRUE(std::filesystem::exists(dir + "/logs/worker-0.log"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/job.textproto"));
  RemoveUnusedRun(dir, /*told=*/true);
  EXPECT_FALSE(std::filesystem::exists(dir));
}

TEST_F(RunDirectoryTest, KeepsTheFolderOfAnUnusedRunIfItHasResults) {
  const std::string dir = folder_.path("run");
  for (const std::string made :
       {"report.json", "model.safetensors", "coordinator.state", "log-0-of-2/1.log", "logs/own/x",
        "state/coordinator.state", "state/own", "state/log-0-of-2/1.log",
        "checkpoint-000000000009/MANIFEST.json", "disk-0/coordinator.lock", "job.lock/x"}) {
    ASSERT_TRUE(PrepareRunDirectory(dir).ok());
    Add("coordinator.lock");
    Add("logs/server-0.log");
    Add(made);
    RemoveUnusedRun(dir, /*told=*/true);
    EXPECT_TRUE(std::filesystem::exists(dir + "/" + made)) << made;
    EXPECT_TRUE(std::filesystem::exists(dir + "/logs/server-0.log")) << made;
    std::filesystem::remove_all(dir);
  }
}

TEST_F(RunDirectoryTest, PrintsTheContinueCommand) {
  const std::string dir = folder_.path("my runs/o'brien");
  EXPECT_EQ(ResumeCommand(dir, " --servers=3"), "");
  const auto add = [&](const std::string& file) {
    std::filesystem::create_directories(std::filesystem::path(dir + "/" + file).parent_path());
    std::ofstream(dir + "/" + file) << "x";
  };
  add("my log.txt");
  EXPECT_EQ(ResumeCommand(dir, ""), "") << "my log.txt is not a push log";
  add("coordinator.state");
  EXPECT_EQ(ResumeCommand(dir, ""), "") << "the disk was full before the first checkpoint";
  add("log-0-of-1/1.log");
  const std::string quoted = folder_.path("my runs/o'\\''brien");
  const std::string way = "  to resume: psctl run '--dir=" + quoted +
                          "' --resume '--job=" + quoted + "/job.textproto' --servers=3\n";
  EXPECT_EQ(ResumeCommand(dir, " --servers=3"),
            "psctl: " + dir + " holds the push log of a job\n" + way);
  add("checkpoint-000000000009/MANIFEST.json");
  EXPECT_EQ(ResumeCommand(dir, " --servers=3"),
            "psctl: " + dir + " holds 1 checkpoint of a job, number 9\n" + way +
                "  to export its model: psctl export '--dir=" + quoted +
                "' --out=model.safetensors\n");
}

TEST_F(RunDirectoryTest, DescribesOnlyAModelThatThisRunWrote) {
  Add("model.safetensors");
  const std::string run = folder_.path("run");
  EXPECT_EQ(DescribeModel(run, absl::InfiniteFuture()), "") << "the model is from an earlier run";
  EXPECT_EQ(DescribeModel(run, absl::InfinitePast()).substr(0, 7 + run.size()), "model: " + run);
  EXPECT_EQ(DescribeModel(folder_.path("none"), absl::InfinitePast()), "");
}

TEST_F(RunDirectoryTest, NewFoldersHaveTheModeOfTheUmask) {
  namespace fs = std::filesystem;
  const mode_t umask_before = umask(027);
  const fs::path dir = folder_.path("run");
  ASSERT_EQ(PrepareRunDirectory(folder_.path("run//")), absl::OkStatus());
  umask(umask_before);
  const fs::perms expected = fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec;
  EXPECT_EQ(fs::status(dir).permissions(), expected);
  EXPECT_EQ(fs::status(dir / "logs").permissions(), expected);
}

TEST_F(RunDirectoryTest, ARunsRecordContainsItsRelease) {
  const std::string dir = folder_.path("run");
  ASSERT_EQ(PrepareRunDirectory(dir), absl::OkStatus());
  ASSERT_TRUE(WriteRunRecord(dir, RecordOfThisRun(/*worker_binary=*/"")).ok());
  const absl::StatusOr<RunRecord> record = ReadRunRecord(dir);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->version, ReleaseVersion());
  EXPECT_EQ(record->commit, ReleaseCommit());
}

}  // namespace
}  // namespace torchps
