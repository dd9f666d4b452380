#include "torchps/job/job_difference.h"

#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

JobSpec NormalizedJob(const std::string& text) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  if (job.optimizer().learning_rate() == 0) job.mutable_optimizer()->set_learning_rate(0.1);
  const absl::StatusOr<JobSpec> normalized = NormalizeJobSpec(job);
  EXPECT_TRUE(normalized.ok()) << normalized.status();
  return normalized.ok() ? *normalized : JobSpec();
}

absl::Status Check(const std::string& mine, const std::string& theirs) {
  return CheckSameJob(NormalizedJob(mine), NormalizedJob(theirs), "the running job", "this worker");
}

absl::Status Differ(const std::string& what) {
  return absl::FailedPreconditionError("the jobs differ in " + what);
}

TEST(JobDifferenceTest, TreatsADefaultAsEqualToItsValue) {
  EXPECT_TRUE(Check("",
                    "training { batch_size: 32 balance: SPEED global_batch: true } "
                    "optimizer { sgd {} } consistency { mode: ASYNC apply: WHOLE_BATCH }")
                  .ok());
}

TEST(JobDifferenceTest, ErrorNamesTheFirstDifferentFieldAndBothValues) {
  EXPECT_EQ(Check("training { batch_size: 16 epochs: 2 }", "training { batch_size: 8 epochs: 2 }"),
            Differ("training.batch_size: the running job has 16, this worker has 8"));
  EXPECT_EQ(Check("name: 'a'", "name: 'b' workers: 7"),
            Differ("name: the running job has \"a\", this worker has \"b\""));
  EXPECT_EQ(Check("", "consistency { mode: ASYNC }"),
            Differ("training.lease_batches: the running job has 1, this worker has 4"));
  EXPECT_EQ(Check("", "training { global_batch: false }"),
            Differ("training.global_batch: the running job has true, this worker has false"));
  EXPECT_EQ(
      Check("consistency { mode: ASYNC }", "consistency { mode: ASYNC lag { policy: WEIGH } }"),
      Differ("consistency.lag.policy: the running job has ACCEPT, this worker has WEIGH"));
}

TEST(JobDifferenceTest, ComparesNumbersExactly) {
  EXPECT_FALSE(
      Check("optimizer { learning_rate: 0.1 }", "optimizer { learning_rate: 0.10000000000000002 }")
          .ok());
}

TEST(JobDifferenceTest, ListsEveryDifferentFieldInOrder) {
  const std::vector<JobDifference> all = AllJobDifferences(
      NormalizedJob("name: 'a' data { path: '/x' } training { epochs: 2 }"),
      NormalizedJob("name: 'a' data { path: '/y' } training { epochs: 3 } optimizer { adam {} }"));
  std::vector<std::string> lines;
  for (const JobDifference& each : all) {
    lines.push_back(each.path + ": " + each.mine + " -> " + each.theirs);
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"data.path: \"/x\" -> \"/y\"", "training.epochs: 2 -> 3",
                                      "optimizer.kind: sgd -> adam"}));
}

TEST(JobDifferenceTest, ErrorNamesBothMembersOfADifferentOneof) {
  EXPECT_EQ(Check("", "optimizer { adam {} }"),
            Differ("optimizer.kind: the running job has sgd, this worker has adam"));
}

TEST(JobDifferenceTest, ComparesListElements) {
  EXPECT_EQ(Check("model { hidden: 1 hidden: 2 }", "model { hidden: 1 hidden: 3 }"),
            Differ("model.hidden.1: the running job has 2, this worker has 3"));
  EXPECT_EQ(Check("model { hidden: 1 }", "model { hidden: 1 hidden: 3 }"),
            Differ("model.hidden: the running job has 1 elements, this worker has 2 elements"));
  EXPECT_EQ(
      Check("optimizer { group { pattern: '*' weight_decay: 0 } }",
            "optimizer { group { pattern: '*' } }"),
      Differ("optimizer.group.0.weight_decay: the running job has 0, this worker has no value"));
}

TEST(JobDifferenceTest, IgnoresTheDataPath) {
  EXPECT_TRUE(Check("data { path: '/a' }", "data { path: '/b' }").ok());
}

TEST(JobDifferenceTest, AJobCompletedWithItsStepsEqualsTheOriginal) {
  const JobSpec theirs = NormalizedJob("");
  JobSpec mine = theirs;
  ASSERT_TRUE(CompleteJobSpec(&mine, 6000).ok());
  ASSERT_GT(mine.optimizer().schedule().total_steps(), 0);
  EXPECT_TRUE(CheckSameJob(mine, theirs, "a", "b").ok());

  JobSpec other = theirs;
  other.mutable_optimizer()->mutable_schedule()->set_total_steps(5);
  EXPECT_EQ(CheckSameJob(mine, other, "a", "b"),
            Differ("optimizer.schedule.total_steps: a has 188, b has 5"));
}

}  // namespace
}  // namespace torchps
