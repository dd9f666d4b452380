#include "torchps/program/worker_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/proto/job.pb.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Holds a command line in the form that main() receives.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> words) : words_(std::move(words)) {
    words_.insert(words_.begin(), "worker");
    for (std::string& word : words_) pointers_.push_back(word.data());
  }
  std::vector<char*>& pointers() { return pointers_; }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
};

class WorkerFlagsTest : public ::testing::Test {
 protected:
  // Parses `words` as flags. Returns the values of --set.
  static std::vector<std::string> Parse(std::vector<std::string> words) {
    Arguments arguments(std::move(words));
    std::vector<std::string> overrides = TakeOverrides(&arguments.pointers());
    absl::ParseCommandLine(static_cast<int>(arguments.pointers().size()),
                           arguments.pointers().data());
    return overrides;
  }

 private:
  const absl::FlagSaver saver_;
};

TEST_F(WorkerFlagsTest, ExtractsEachSetInOrder) {
  Arguments arguments({"--set", "a=1", "--local", "-set=b=2", "--set=a=x=y", "--set"});
  EXPECT_THAT(TakeOverrides(&arguments.pointers()), ElementsAre("a=1", "b=2", "a=x=y"));
  const std::vector<std::string> rest(arguments.pointers().begin(), arguments.pointers().end());
  // The last --set has no value. It stays, so that the flag parser reports it.
  EXPECT_THAT(rest, ElementsAre("worker", "--local", "--set"));
}

TEST_F(WorkerFlagsTest, TheFlagsSelectTheMode) {
  EXPECT_EQ(FlaggedMode(), WorkerMode::kTrain);
  Parse({"--predict=m.safetensors"});
  EXPECT_EQ(FlaggedMode(), WorkerMode::kLook);
  Parse({"--evaluate_every=5s"});
  EXPECT_EQ(FlaggedMode(), WorkerMode::kWatch);
  EXPECT_THAT(CheckWatchFlags(/*can=*/true).message(), HasSubstr("--servers"));
}

TEST_F(WorkerFlagsTest, ErrorNamesTheIncompatibleFlag) {
  struct Case {
    std::vector<std::string> words;
    std::string named;
  };
  for (const Case& each : std::vector<Case>{
           {{}, "--servers"},
           {{"--local", "--servers=a:1"}, "set exactly one of"},
           {{"--servers=a:1", "--dir=d"}, "--dir and --resume need --local"},
           {{"--local", "--resume"}, "--resume needs --dir"},
           {{"--local", "--local_servers=0"}, "--local_servers"},
           {{"--servers=a:1", "--predecessor_died"}, "--slot"},
           {{"--local", "--slow=0.5"}, "slow"},
           {{"--local", "--threads=0"}, "--threads"},
           {{"--servers=a:1", "--stage=0"}, "--replica"},
           {{"--local", "--stage=0", "--replica=a:1,b:1"}, "--stage needs servers"},
           {{"--local", "--micro_batches=-1"}, "--micro_batches"},
           {{"--local", "--loader_threads=257"}, "expected 0 to 256"},
       }) {
    const absl::FlagSaver saver;
    Parse(each.words);
    const absl::Status status = CheckTrainFlags();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << each.named;
    EXPECT_THAT(status.message(), HasSubstr(each.named));
  }
  Parse({"--servers=a:1,b:2"});
  EXPECT_TRUE(CheckTrainFlags().ok()) << CheckTrainFlags();
}

TEST_F(WorkerFlagsTest, RefusesModesThatTheProgramLacks) {
  Parse({"--evaluate=m.pt"});
  EXPECT_TRUE(CheckInferenceFlags(/*can=*/true).ok());
  EXPECT_THAT(CheckInferenceFlags(/*can=*/false).message(), HasSubstr("its own training loop"));
  Parse({"--evaluate=", "--predict=m.pt", "--data=new.csv", "--on_training_data"});
  EXPECT_THAT(CheckInferenceFlags(/*can=*/true).message(), HasSubstr("leave out --data or"));
  Parse({"--predict=", "--data=", "--noon_training_data"});
  Parse({"--evaluate_every=5s", "--servers=a:1"});
  EXPECT_TRUE(CheckWatchFlags(/*can=*/true).ok());
  EXPECT_THAT(CheckWatchFlags(/*can=*/false).message(), HasSubstr("its own training loop"));
  Parse({"--job=job.textproto"});
  EXPECT_THAT(CheckWatchFlags(/*can=*/true).message(), HasSubstr("leave out --job"));
}

TEST_F(WorkerFlagsTest, SetFlagsAndDataOverrideTheJob) {
  const std::vector<std::string> overrides =
      Parse({"--set", "workers=3", "--set=optimizer.learning_rate=0.5", "--set=data.path=here",
             "--data=there"});
  absl::StatusOr<JobSpec> job = FlaggedJob(overrides);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->workers(), 3);
  EXPECT_EQ(job->data().path(), "there");
  EXPECT_EQ(job->optimizer().learning_rate(), 0.5);

  Parse({"--local"});
  job = FlaggedJob(overrides);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->workers(), 1) << "other processes cannot reach the servers";
}

TEST_F(WorkerFlagsTest, OnlyTrainingNeedsALearningRate) {
  EXPECT_EQ(FlaggedJob({}).status().code(), absl::StatusCode::kInvalidArgument);
  Parse({"--predict=m.safetensors"});
  const absl::StatusOr<JobSpec> job = FlaggedJob({});
  EXPECT_TRUE(job.ok()) << job.status();
}

}  // namespace
}  // namespace torchps
