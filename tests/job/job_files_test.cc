#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

// Returns the job files in deploy/jobs, which users copy as a starting point.
std::vector<std::filesystem::path> JobFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/jobs")) {
    if (entry.path().extension() == ".textproto") files.push_back(entry.path());
  }
  return files;
}

TEST(JobFilesTest, EveryModelHasAJobFile) {
  std::vector<std::string> models;
  for (const auto& path : JobFiles()) {
    const absl::StatusOr<JobSpec> job = ParseJobFile(path.string());
    ASSERT_TRUE(job.ok()) << job.status();
    models.push_back(job->model().name());
  }
  EXPECT_THAT(models, testing::UnorderedElementsAre("linear", "mlp", "convnet", "convnet",
                                                    "resnet18", "transformer", "transformer"));
}

TEST(JobFilesTest, AreValidAndNamedLikeTheirFiles) {
  for (const auto& path : JobFiles()) {
    const absl::StatusOr<JobSpec> job = ParseJobFile(path.string());
    ASSERT_TRUE(job.ok()) << job.status();
    absl::StatusOr<JobSpec> normalized = NormalizeJobSpec(*job);
    ASSERT_TRUE(normalized.ok()) << path << ": " << normalized.status();
    EXPECT_EQ(normalized->name(), path.stem().string());
    const absl::Status completed = CompleteJobSpec(&*normalized, 6000);
    EXPECT_TRUE(completed.ok()) << path << ": " << completed;
  }
}

TEST(JobFilesTest, AreValidInAsyncAndInSyncMode) {
  for (const auto& path : JobFiles()) {
    absl::StatusOr<JobSpec> job = ParseJobFile(path.string());
    ASSERT_TRUE(job.ok()) << job.status();
    for (const ConsistencySpec::Mode mode : {ConsistencySpec::ASYNC, ConsistencySpec::SYNC}) {
      job->mutable_consistency()->set_mode(mode);
      const absl::StatusOr<JobSpec> normalized = NormalizeJobSpec(*job);
      EXPECT_TRUE(normalized.ok()) << path << ": " << normalized.status();
    }
  }
}

TEST(JobFilesTest, ContainNoDataPath) {
  for (const auto& path : JobFiles()) {
    const absl::StatusOr<JobSpec> job = ParseJobFile(path.string());
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->data().path(), "") << path;
  }
}

}  // namespace
}  // namespace torchps
