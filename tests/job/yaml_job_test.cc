#include "torchps/job/file/yaml_job.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "torchps/job/job_file.h"

namespace torchps {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Expects that the YAML or JSON text and the text format describe the same job.
void ExpectSame(const std::string& text, const std::string& expected) {
  const absl::StatusOr<JobSpec> job = ParseYamlJob(text, "a.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<JobSpec> same = ParseJobText(expected, "a.textproto");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*job, *same)) << job->DebugString();
}

void ExpectYamlError(const std::string& text, const std::string& message) {
  const absl::StatusOr<JobSpec> job = ParseYamlJob(text, "a.yaml");
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()), StartsWith(message));
}

TEST(YamlJobTest, ReadsEachKindOfField) {
  ExpectSame(R"(# a comment
name: 8
training:
  epochs: 3
  batch_size: "64"
  evaluate: yes
model: {name: mlp, hidden: [64, 32]}
optimizer: {adam: {}, learning_rate: "1e-3", group: [{pattern: "*.bias"}]}
consistency: {mode: sync}
hyperparameter: {dropout: 0.1, "a.b": c}
)",
             R"(name: "8"
training { epochs: 3 batch_size: 64 evaluate: true }
model { name: "mlp" hidden: 64 hidden: 32 }
optimizer { adam {} learning_rate: 1e-3 group { pattern: "*.bias" } }
consistency { mode: SYNC }
hyperparameter { name: "dropout" value: "0.1" } hyperparameter { name: "a.b" value: "c" })");
}

TEST(YamlJobTest, ReadsJson) {
  ExpectSame(
      "{\n\t\"training\": {\"batchSize\": 64, \"epochs\": 3},\r\n\t\"name\": \"a\\u00e9\\/\",\n"
      "\t\"hyperparameter\": [{\"name\": \"x\", \"value\": \"1\"}]\n}\n",
      "training { batch_size: 64 epochs: 3 } name: \"a\xc3\xa9/\" "
      "hyperparameter { name: 'x' value: '1' }");
}

TEST(YamlJobTest, AnEmptyValueIsAnEmptyMessage) {
  ExpectSame("optimizer:\n  adam:\n", "optimizer { adam {} }");
  ExpectSame("", "");
}

TEST(YamlJobTest, SelectsAOneofMemberByName) {
  ExpectSame("optimizer: {kind: adam}", "optimizer { adam {} }");
  ExpectSame("optimizer: {kind: adam, adam: {beta1: 0.5}}", "optimizer { adam { beta1: 0.5 } }");
  ExpectYamlError(
      "optimizer:\n  kind: adm",
      "a.yaml:2: job field optimizer.kind cannot be \"adm\"; expected one of sgd, adam");
}

TEST(YamlJobTest, ErrorNamesTheLineAndSuggestsAField) {
  ExpectYamlError(
      "name: x\ntraining:\n  batchsize: 3",
      "a.yaml:3: TrainingSpec has no field \"batchsize\"; did you mean \"batch_size\"? it "
      "has: epochs, batch_size, accumulate");
  ExpectYamlError("training: {_evaluate: true}",
                  "a.yaml:1: TrainingSpec has no field \"_evaluate\"");
  ExpectYamlError("learning_rate: 3",
                  "a.yaml:1: JobSpec has no field \"learning_rate\"; did you mean "
                  "optimizer.learning_rate?");
}

TEST(YamlJobTest, ErrorNamesTheLineOfAnInvalidValue) {
  ExpectYamlError(
      "training:\n  epochs: many",
      "a.yaml:2: job field training.epochs cannot be \"many\"; expected a whole number");
  ExpectYamlError("consistency:\n\n  mode: ASNC",
                  "a.yaml:3: job field consistency.mode cannot be \"ASNC\"; expected one of ASYNC, "
                  "SYNC; did you mean ASYNC?");
  ExpectYamlError("model:\n  hidden:\n    - 64\n    - x",
                  "a.yaml:4: job field model.hidden.1 cannot be \"x\"");
  ExpectYamlError("workers:", "a.yaml:1: job field workers is empty; expected one value");
  ExpectYamlError("workers: [1]", "a.yaml:1: job field workers is a list; expected one value");
  ExpectYamlError("name: {a: b}", "a.yaml:1: job field name is a map; expected one value");
  ExpectYamlError(
      "model: convnet",
      "a.yaml:1: job field model is a message; expected its fields, each as name: value "
      "(name, ");
  ExpectYamlError("- name: x", "a.yaml:1: the job is a message; expected its fields");
}

TEST(YamlJobTest, RefusesADuplicateField) {
  ExpectYamlError("training: {epochs: 1}\nworkers: 2\ntraining: {}",
                  "a.yaml:3: job field training is given twice");
  ExpectYamlError("optimizer:\n  sgd: {}\n  adam: {}",
                  "a.yaml:3: OptimizerSpec has both sgd and adam; expected one of them");
  ExpectYamlError("optimizer:\n  adam: {}\n  kind: sgd",
                  "a.yaml:3: OptimizerSpec has both adam and sgd; expected one of them");
  ExpectYamlError("name: x\n---\nname: y", "a.yaml:3: a second document begins here");
}

TEST(YamlJobTest, ErrorNamesTheLineOfASyntaxError) {
  ExpectYamlError("name: x\ntraining: {epochs: 3\n",
                  "a.yaml:3: did not find expected ',' or '}' while parsing a flow mapping, which "
                  "starts in line 2");
  ExpectYamlError("name: x\n  workers: 3",
                  "a.yaml:2: mapping values are not allowed in this context");
  ExpectYamlError("{\"workers\": 3}}", "a.yaml:1: did not find expected ");
  ExpectYamlError("name: x\nworkers: \xff", "a.yaml: not valid UTF-8 at byte 17");
  ExpectYamlError(std::string(1000, '['), "a.yaml:2: did not find expected node content");
}

TEST(YamlJobTest, TheFileExtensionSelectsTheFormat) {
  for (const std::string name : {"job.yaml", "job.yml", "job.json"}) {
    const std::string path = testing::TempDir() + name;
    std::ofstream(path) << "{\"workers\": 5}";
    const absl::StatusOr<JobSpec> job = ParseJobFile(path);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->workers(), 5);
    std::ofstream(path) << "{\"workers\": x}";
    EXPECT_THAT(std::string(ParseJobFile(path).status().message()),
                HasSubstr(name + ":1: job field"));
  }
}

}  // namespace
}  // namespace torchps
