#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "torchps/job/job_difference.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

// Returns an ASYNC job with the given fields, as "path=value" separated by blanks.
JobSpec Job(const std::string& fields) {
  JobSpec job;
  for (const absl::string_view field : absl::StrSplit(
           absl::StrCat("optimizer.learning_rate=0.1 workers=2 consistency.mode=ASYNC ", fields),
           ' ', absl::SkipEmpty())) {
    const absl::Status set = ApplyOverride(&job, field);
    EXPECT_TRUE(set.ok()) << set;
  }
  return *NormalizeJobSpec(job);
}

std::string Refusal(const std::string& before, const std::string& now) {
  return std::string(CheckMayResume(Job(before), Job(now)).message());
}

TEST(ResumedJobTest, AcceptsChangedTrainingSettings) {
  EXPECT_EQ(Refusal("training.epochs=2",
                    "name=again training.epochs=9 training.clip_norm=1 training.evaluate=false "
                    "training.precision=BFLOAT16 "
                    "optimizer.learning_rate=0.01 optimizer.weight_decay=0.1 "
                    "optimizer.schedule.shape=COSINE optimizer.schedule.total_steps=90 "
                    "consistency.staleness_bound=1 consistency.lag.policy=REJECT "
                    "wire.push.kind=BFLOAT16 wire.shared_memory=false "
                    "membership.lease_seconds=5 durability.checkpoint_seconds=5"),
            "");
}

TEST(ResumedJobTest, ErrorNamesTheForbiddenChangeAndTheReason) {
  EXPECT_EQ(
      Refusal("", "seed=2"),
      "a resumed job cannot change seed, because it determines which samples of the epoch are "
      "already used: the job has 1, this worker has 2");
  const struct {
    const char* now;
    const char* field;
    const char* why;
  } kCases[] = {
      {"model.name=mlp", "model.name", "values of that model"},
      {"data.source=csv", "data.source", "samples of this data"},
      {"training.batch_size=64", "training.batch_size", "data leases"},
      {"optimizer.adam.beta1=0.9", "optimizer.kind", "that optimizer's state"},
      {"optimizer.sgd.momentum=0.5", "optimizer.sgd.momentum", "that optimizer's state"},
      {"consistency.mode=SYNC", "consistency.mode", "SYNC counts rounds"},
      {"training.global_batch=false workers=3", "training.global_batch", "data leases"},
      {"wire.block_bytes=4096", "wire.block_bytes", "blocks of that size"},
      {"durability.level=LOG", "durability.level", "on the disk"},
  };
  for (const auto& one : kCases) {
    const std::string why = Refusal("", one.now);
    EXPECT_NE(why.find(absl::StrCat("cannot change ", one.field)), std::string::npos) << why;
    EXPECT_NE(why.find(one.why), std::string::npos) << why;
  }
}

TEST(ResumedJobTest, OnlyWithAGlobalBatchTheNumberOfWorkersMayChange) {
  EXPECT_EQ(Refusal("", "workers=3"), "");
  EXPECT_EQ(Refusal("", "workers=1"), "");
  const std::string own_batches = "training.global_batch=false ";
  EXPECT_NE(Refusal(own_batches, own_batches + "workers=3").find("cannot change workers"),
            std::string::npos);
}

TEST(ResumedJobTest, RefusesAnotherOptimizerWhileAPushLogIsReplayed) {
  const std::string log = "durability.level=LOG ";
  EXPECT_EQ(Refusal(log, log + "training.epochs=7"), "");
  EXPECT_NE(Refusal(log, log + "optimizer.learning_rate=0.01").find("push log is replayed"),
            std::string::npos);
}

TEST(ResumedJobTest, RefusesAnotherPatternForAParameterGroup) {
  const auto group = [](const std::string& pattern, double factor) {
    return absl::StrCat("optimizer.group.0.pattern=", pattern,
                        " optimizer.group.0.learning_rate_factor=", factor);
  };
  EXPECT_EQ(Refusal(group("*.bias", 1), group("*.bias", 0.5)), "");
  EXPECT_NE(Refusal(group("*.bias", 1), group("*.weight", 1)), "");
}

}  // namespace
}  // namespace torchps
