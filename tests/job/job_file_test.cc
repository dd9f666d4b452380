#include "torchps/job/job_file.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

void ExpectError(const std::string& text, const std::string& message) {
  const absl::StatusOr<JobSpec> job = ParseJobText(text, "a.textproto");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr(message));
}

std::string WrittenFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(JobFileTest, ReadsAJob) {
  const absl::StatusOr<JobSpec> job = ParseJobText(
      "# a comment\nname: 'x'\ntraining { batch_size: 64 }\noptimizer { adam {} }", "a.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "x");
  EXPECT_EQ(job->training().batch_size(), 64);
  EXPECT_FALSE(job->training().has_epochs());
  EXPECT_TRUE(job->optimizer().has_adam());
}

TEST(JobFileTest, ErrorNamesTheLineAndSuggestsAField) {
  ExpectError("name: 'x'\ntraining {\n  batchsize: 3\n}",
              "a.textproto:3: TrainingSpec has no field \"batchsize\"; did you mean "
              "\"batch_size\"? it has: epochs, batch_size, accumulate");
}

TEST(JobFileTest, ErrorListsAllFieldsIfNoneIsSimilar) {
  ExpectError("wire { zzz: 3 }",
              "a.textproto:1: WireSpec has no field \"zzz\"; it has: block_bytes");
}

// The text parser skips reserved names without an error, so job.proto reserves only numbers.
TEST(JobFileTest, RefusesRemovedFields) {
  ExpectError("consistency {\n  grace_ms: 20 }",
              "a.textproto:2: ConsistencySpec has no field \"grace_ms\"");
  ExpectError("consistency { lag { admit_after: 0 } }",
              "a.textproto:1: LagContract has no field \"admit_after\"");
  ExpectError("training { balance_floor: 0.5 }",
              "a.textproto:1: TrainingSpec has no field \"balance_floor\"");
  ExpectError("local { fragments: 2 }", "a.textproto:1: LocalSpec has no field \"fragments\"");
  ExpectError("optimizer { sgd { momentum_at: ORDERED } }",
              "a.textproto:1: momentum_at cannot be \"ORDERED\"; expected one of SERVER, WORKER, "
              "DELAYED");
}

TEST(JobFileTest, ErrorNamesTheLineOfASyntaxError) {
  ExpectError("name: 'x'\nworkers: many", "a.textproto:2: ");
  ExpectError("name: 'x\n", "a.textproto:1: ");
  ExpectError("training {", "a.textproto:1: ");
  ExpectError("consistency { mode: SOMETIMES }", "a.textproto:1: ");
  ExpectError("workers: 99999999999", "a.textproto:1: ");
}

TEST(JobFileTest, ErrorExplainsAnUnbalancedBrace) {
  ExpectError("training {\n  epochs: 3\noptimizer { learning_rate: 1 }",
              "a.textproto:3: TrainingSpec has no field \"optimizer\", but JobSpec does; is a } "
              "missing before it?");
  ExpectError(
      "optimizer {\n  sgd {\n  learning_rate: 1 }",
      "a.textproto:3: SgdSpec has no field \"learning_rate\", but OptimizerSpec does; is a }");
  ExpectError("training {\n  epochs: 3\n", "the file ends inside a message; is a } missing?");
  ExpectError("training {\n  epochs: 3 }\n}", "a.textproto:3: unmatched }");
}

TEST(JobFileTest, ErrorNamesTheKindOfValueExpected) {
  ExpectError("training {\n  epochs: four }", "a.textproto:2: expected a whole number, not four");
  ExpectError("optimizer { learning_rate: x }", "a.textproto:1: expected a number, not x");
  ExpectError("model { name: convnet }", "a.textproto:1: expected a quoted string, not convnet");
  ExpectError("model { name:", "a.textproto:1: the file ends where a quoted string is expected");
  ExpectError("model: \"convnet\"",
              "a.textproto:1: expected a {, not \"convnet\"; write the fields of a message");
  ExpectError("optimizer { sgd learning_rate: 1 }",
              "a.textproto:1: expected a {, not \"learning_rate\"; write the fields");
  ExpectError("{\"workers\": 3}", "a.textproto:1: expected a field name, not a {");
}

TEST(JobFileTest, ErrorListsTheValuesOfAnEnum) {
  ExpectError("consistency {\n  mode: ASNC }",
              "a.textproto:2: mode cannot be \"ASNC\"; expected one of ASYNC, SYNC; did you mean "
              "ASYNC?");
}

TEST(JobFileTest, RefusesTwoMembersOfAOneof) {
  ExpectError("optimizer {\n sgd {}\n adam {} }", "a.textproto:3: ");
}

TEST(JobFileTest, ReadsAFile) {
  const std::string path = WrittenFile("job.textproto", "workers: 5");
  const absl::StatusOr<JobSpec> job = ParseJobFile(path);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->workers(), 5);
}

TEST(JobFileTest, ErrorBeginsWithTheFileName) {
  const std::string path = WrittenFile("broken.textproto", "\nworker: 5");
  EXPECT_EQ(ParseJobFile(path).status().message().find(path + ":2: JobSpec has no field"), 0u);
}

TEST(JobFileTest, ReportsAMissingFile) {
  const absl::Status status = ParseJobFile("no/such.textproto").status();
  EXPECT_EQ(status, absl::NotFoundError(
                        "job file no/such.textproto cannot be read: No such file or directory"));
}

TEST(JobFileTest, RefusesADirectory) {
  const absl::Status status = ParseJobFile(testing::TempDir()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Is a directory"));
}

TEST(JobFileTest, RefusesATooLargeFile) {
  const std::string path = WrittenFile("large.textproto", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(ParseJobFile(path).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace torchps
