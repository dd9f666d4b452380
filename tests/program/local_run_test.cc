#include "torchps/program/local_run.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/common/clock.h"
#include "torchps/job/job_file.h"
#include "torchps/proto/job.pb.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

class LocalRunTest : public ::testing::Test {
 protected:
  LocalRunTest() {
    std::string pattern = ::testing::TempDir() + "/local_run_test_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    options_.dir = folder_ + "/run";
    options_.clock = &clock_;
    job_.set_name("alone");
  }
  ~LocalRunTest() override { std::filesystem::remove_all(folder_); }

  const SteadyClock clock_;
  std::string folder_;
  LocalRun::Options options_;
  JobSpec job_;
};

TEST_F(LocalRunTest, WritesTheJobFileAndStartsTheServers) {
  options_.servers = 2;
  absl::StatusOr<LocalRun> run = LocalRun::Start(job_, options_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->endpoints().size(), 2u);
  const absl::StatusOr<JobSpec> kept = ParseJobFile(options_.dir + "/job.textproto");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->name(), "alone");
  EXPECT_TRUE(std::filesystem::is_directory(options_.dir + "/state"));

  // No worker has trained, so End() logs nothing and finds no model.
  const auto says = [](const std::string& line) { ADD_FAILURE() << line; };
  EXPECT_TRUE(absl::IsCancelled(run->End(absl::CancelledError("stopped"), says, says)));
}

TEST_F(LocalRunTest, ARefusedResumeKeepsTheExistingJobFile) {
  const auto says = [](const std::string& line) { ADD_FAILURE() << line; };
  const auto kept_name = [this] { return ParseJobFile(options_.dir + "/job.textproto")->name(); };
  LocalRun::Start(job_, options_)->End(absl::CancelledError("stopped"), says, says).IgnoreError();
  options_.resume = true;
  job_.set_name("another");
  absl::StatusOr<LocalRun> refused = LocalRun::Start(job_, options_);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(kept_name(), "alone");
  refused->End(absl::FailedPreconditionError("another job"), says, says).IgnoreError();
  EXPECT_EQ(kept_name(), "alone");
}

TEST_F(LocalRunTest, DoesNotTouchAnExistingJobsFolder) {
  // The state is in the folder "state". Earlier versions kept it in `dir` itself.
  for (const std::string& state : {options_.dir + "/state", options_.dir}) {
    std::filesystem::create_directories(state);
    std::ofstream(state + "/coordinator.state") << "of a job";
    const absl::Status status = LocalRun::Start(job_, options_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("resume it with --resume"));
    EXPECT_FALSE(std::filesystem::exists(options_.dir + "/job.textproto"));
    std::filesystem::remove_all(options_.dir);
  }
}

TEST_F(LocalRunTest, ErrorNamesAFolderThatCannotBeCreated) {
  std::ofstream(options_.dir) << "a file";
  const absl::Status status = LocalRun::Start(job_, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(options_.dir));
}

}  // namespace
}  // namespace torchps
