#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/job/job_file.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

JobSpec JobFromText(const std::string& text) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

void ExpectBecomes(const std::string& before, const std::string& assignment,
                   const std::string& after) {
  JobSpec job = JobFromText(before);
  const absl::Status status = ApplyOverride(&job, assignment);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(job.ShortDebugString(), JobFromText(after).ShortDebugString()) << assignment;
}

void ExpectOverrideRefused(const std::string& assignment, const std::string& message) {
  JobSpec job = JobFromText("optimizer { group { pattern: '*' } }");
  const absl::Status status = ApplyOverride(&job, assignment);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << assignment;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(JobOverrideTest, SetsAFieldOfEveryKind) {
  ExpectBecomes("", "name=x", "name: 'x'");
  ExpectBecomes("", "seed=18446744073709551615", "seed: 18446744073709551615");
  ExpectBecomes("workers: 2", "workers=3", "workers: 3");
  ExpectBecomes("", "training.max_pushes=5000000000", "training { max_pushes: 5000000000 }");
  ExpectBecomes("", "training.evaluate=No", "training { evaluate: false }");
  ExpectBecomes("", "optimizer.learning_rate=1e-3", "optimizer { learning_rate: 0.001 }");
  ExpectBecomes("", "consistency.staleness_bound=-1", "consistency { staleness_bound: -1 }");
  ExpectBecomes("", "consistency.mode=sync", "consistency { mode: SYNC }");
  ExpectBecomes("", "consistency.lag.policy=Reject", "consistency { lag { policy: REJECT } }");
}

TEST(JobOverrideTest, SplitsAtTheFirstEqualsSign) {
  ExpectBecomes("", "data.path=/a=b c", "data { path: '/a=b c' }");
  ExpectBecomes("data { path: 'x' }", "data.path=", "data { path: '' }");
}

TEST(JobOverrideTest, AssigningAFieldOfAOneofMemberSelectsTheMember) {
  ExpectBecomes("optimizer { sgd { momentum: 0.9 } }", "optimizer.adam.beta1=0.8",
                "optimizer { adam { beta1: 0.8 } }");
}

TEST(JobOverrideTest, SelectsAOneofMemberByName) {
  ExpectBecomes("optimizer { sgd { momentum: 0.9 } }", "optimizer.kind=AdamW",
                "optimizer { adamw {} }");
  ExpectBecomes("optimizer { sgd { momentum: 0.9 } }", "optimizer.kind=sgd",
                "optimizer { sgd { momentum: 0.9 } }");
}

TEST(JobOverrideTest, ReplacesAndClearsAList) {
  ExpectBecomes("model { hidden: 1 }", "model.hidden=64", "model { hidden: 64 }");
  ExpectBecomes("model { hidden: 1 }", "model.hidden=64,32", "model { hidden: 64 hidden: 32 }");
  ExpectBecomes("model { name: 'mlp' hidden: 1 }", "model.hidden=", "model { name: 'mlp' }");
}

TEST(JobOverrideTest, SetsFieldsInAListOfMessages) {
  ExpectBecomes("optimizer { group { pattern: '*' } }", "optimizer.group.0.weight_decay=0",
                "optimizer { group { pattern: '*' weight_decay: 0 } }");
  ExpectBecomes("optimizer { group { pattern: '*' } }", "optimizer.group.1.pattern=*.bias",
                "optimizer { group { pattern: '*' } group { pattern: '*.bias' } }");
}

TEST(JobOverrideTest, ErrorNamesTheKindOfValueExpected) {
  ExpectOverrideRefused(
      "training.batch_size=abc",
      "job field training.batch_size cannot be \"abc\"; expected a whole number from "
      "-2147483648 to 2147483647");
  ExpectOverrideRefused("training.batch_size=", "cannot be \"\"");
  ExpectOverrideRefused("training.batch_size=2147483648", "cannot be \"2147483648\"");
  ExpectOverrideRefused("seed=-1", "expected a whole number from 0 to 18446744073709551615");
  ExpectOverrideRefused("training.evaluate=maybe", "expected true or false");
  ExpectOverrideRefused("optimizer.learning_rate=fast", "expected a finite number");
  ExpectOverrideRefused("optimizer.learning_rate=nan", "expected a finite number");
  ExpectOverrideRefused("optimizer.learning_rate=1e999", "expected a finite number");
  ExpectOverrideRefused(
      "consistency.mode=lockstep",
      "job field consistency.mode cannot be \"lockstep\"; expected one of ASYNC, SYNC");
  ExpectOverrideRefused("consistency.mode=ASNC",
                        "expected one of ASYNC, SYNC; did you mean ASYNC?");
  ExpectOverrideRefused("optimizer.kind=adma", "adagrad, rmsprop; did you mean adam?");
  ExpectOverrideRefused("optimizer.kind=lamb",
                        "expected one of sgd, adam, adamw, adagrad, rmsprop");
}

TEST(JobOverrideTest, ErrorForAnUnknownFieldListsTheFields) {
  ExpectOverrideRefused(
      "training.batchsize=3",
      "job field \"training.batchsize\" does not exist: TrainingSpec has no field "
      "\"batchsize\"; did you mean \"batch_size\"? it has: epochs, batch_size");
  ExpectOverrideRefused("trainings.epochs=3", "did you mean \"training\"?");
  ExpectOverrideRefused("=3", "JobSpec has no field \"\"");
  ExpectOverrideRefused("training.=3", "TrainingSpec has no field \"\"");
  ExpectOverrideRefused("name.first=3", "name has no fields of its own");
  // For an optional field, protobuf makes a hidden oneof with this name. It is not a field of the
  // job.
  ExpectOverrideRefused("training._evaluate=true", "TrainingSpec has no field");
}

TEST(JobOverrideTest, ErrorForAWholeMessageListsItsFields) {
  ExpectOverrideRefused("wire=3", "it is a message, set one of its fields (block_bytes, push");
  ExpectOverrideRefused("optimizer=adam", "; did you mean optimizer.kind=adam?");
  ExpectOverrideRefused("optimizer.adam={}", "; did you mean optimizer.kind=adam?");
  ExpectOverrideRefused("optimizer.group=3", "it is a message, set one of its fields (pattern");
  ExpectOverrideRefused("optimizer.group.0=3", "it is a message, set one of its fields (pattern");
}

TEST(JobOverrideTest, RefusesAnElementThatTheListLacks) {
  ExpectOverrideRefused("optimizer.group.2.pattern=x",
                        "names element \"2\" of the list group; expected 0 to 1");
  ExpectOverrideRefused("optimizer.group.pattern=x", "names element \"pattern\" of the list group");
  ExpectOverrideRefused("optimizer.group.-1.pattern=x", "expected 0 to 1");
}

TEST(JobOverrideTest, RefusesAnOverrideWithoutAssignment) {
  ExpectOverrideRefused("training.epochs", "override \"training.epochs\" has no '='");
  ExpectOverrideRefused("", "has no '='");
}

TEST(JobOverrideTest, ErrorEscapesUnprintableBytes) {
  ExpectOverrideRefused("\xff\n=3", "\"\\xff");
  ExpectOverrideRefused("workers=\xe2\x82", "cannot be \"\\xe2\\x82\"");
}

TEST(JobOverrideTest, SuggestsTheSetFlagForAFieldUsedAsAFlag) {
  EXPECT_EQ(SetFlagFor("batch-size"), "--set=training.batch_size=VALUE");
  EXPECT_EQ(SetFlagFor("lr"), "--set=optimizer.learning_rate=VALUE");
  EXPECT_EQ(SetFlagFor("optimizer.adam.beta1"), "--set=optimizer.adam.beta1=VALUE");
  EXPECT_EQ(SetFlagFor("v1.2"), "");
  EXPECT_EQ(SetFlagFor("verbose"), "");
}

}  // namespace
}  // namespace torchps
