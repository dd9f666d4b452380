// Checks the lists in torchps/job/built_ins.h against the code that opens data and builds models.

#include <algorithm>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "torchps/data/data_registry.h"
#include "torchps/job/built_ins.h"
#include "torchps/job/job_spec.h"
#include "torchps/worker/models/model_registry.h"
#include "torchps/worker/objective.h"

namespace torchps {
namespace {

JobSpec Job(const std::string& model, const std::string& source) {
  JobSpec job;
  job.mutable_model()->set_name(model);
  job.mutable_model()->mutable_transformer();
  job.mutable_data()->set_source(source);
  job.mutable_data()->set_train_samples(64);
  job.mutable_data()->set_test_samples(64);
  job.mutable_optimizer()->set_learning_rate(1);
  const absl::StatusOr<JobSpec> normal = NormalizeJobSpec(job);
  EXPECT_TRUE(normal.ok()) << normal.status();
  return *normal;
}

// Expects each metric of `objective` in the list of metrics that --target accepts.
void ExpectListed(const Objective& objective) {
  const std::vector<std::string> metrics = BuiltInMetrics();
  for (const Metric& metric : objective.metrics) {
    EXPECT_EQ(std::count(metrics.begin(), metrics.end(), metric.name), 1) << metric.name;
  }
}

TEST(BuiltInsInWorkerTest, EveryListedModelCanBeBuilt) {
  for (const std::string& model : BuiltInModels()) {
    const JobSpec job = Job(model, model == "transformer" ? "text" : "digits");
    absl::StatusOr<DataSource> data = OpenData(job);
    ASSERT_TRUE(data.ok()) << data.status();
    const absl::StatusOr<Task> task = MakeTask(job, *std::move(data));
    ASSERT_TRUE(task.ok()) << model << ": " << task.status();
    ExpectListed(task->objective());
  }
  ExpectListed(CrossEntropy(/*classes=*/2));
}

// OpenData's error for an unknown source lists the known sources.
TEST(BuiltInsInWorkerTest, EveryListedDataSourceIsKnownToOpenData) {
  const std::string text(OpenData(Job("mlp", "nonsense")).status().message());
  const std::string known = text.substr(0, text.find(", got"));
  const auto commas = std::count(known.begin(), known.end(), ',');
  for (const std::string& source : BuiltInDataSources()) {
    EXPECT_TRUE(absl::StrContains(known, source)) << source << " is not in: " << text;
    const absl::Status opened = OpenData(Job("transformer", source)).status();
    EXPECT_FALSE(absl::StrContains(opened.message(), "data.source: expected")) << opened;
  }
  EXPECT_EQ(static_cast<size_t>(commas) + 2, BuiltInDataSources().size())
      << "torchps/data/data_registry and torchps/job/built_ins list different sources: " << text;
}

}  // namespace
}  // namespace torchps
