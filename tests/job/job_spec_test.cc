#include "torchps/job/job_spec.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "torchps/job/job_file.h"

namespace torchps {
namespace {

using ::testing::StartsWith;

// Parses `text`, and sets a learning rate if the text does not.
JobSpec FromText(const std::string& text) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  if (job.optimizer().learning_rate() == 0) job.mutable_optimizer()->set_learning_rate(0.1);
  return job;
}

JobSpec Normalized(const std::string& text) {
  const absl::StatusOr<JobSpec> job = NormalizeJobSpec(FromText(text));
  EXPECT_TRUE(job.ok()) << text << ": " << job.status();
  return job.ok() ? *job : JobSpec();
}

void ExpectMessage(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
  EXPECT_EQ(status.message(), message);
}

// Expects that normalizing the job fails with the error "job field `message`".
void ExpectRefused(const std::string& text, const std::string& message) {
  ExpectMessage(NormalizeJobSpec(FromText(text)).status(), "job field " + message);
}

// Checks the limits of a number field: the lowest and the highest allowed value, and the next
// values outside.
void ExpectLimits(const std::string& field, const std::string& lowest, const std::string& too_low,
                  const std::string& highest, const std::string& too_high) {
  for (const std::string& value : {lowest, highest}) {
    JobSpec job = FromText("workers: 4096 consistency { mode: ASYNC }");
    ASSERT_TRUE(ApplyOverride(&job, field + "=" + value).ok()) << field;
    EXPECT_TRUE(NormalizeJobSpec(job).ok()) << NormalizeJobSpec(job).status();
  }
  for (const std::string& value : {too_low, too_high}) {
    JobSpec job = FromText("workers: 4096 consistency { mode: ASYNC }");
    ASSERT_TRUE(ApplyOverride(&job, field + "=" + value).ok()) << field;
    const absl::Status status = NormalizeJobSpec(job).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << "=" << value;
    EXPECT_THAT(std::string(status.message()), StartsWith("job field " + field + " is "));
  }
}

TEST(JobSpecTest, FillsInEveryDefault) {
  EXPECT_EQ(
      Normalized("").ShortDebugString(),
      "name: \"job\" seed: 1 workers: 1 model { } "
      "data { source: \"digits\" train_samples: 6000 test_samples: 1000 } "
      "training { epochs: 1 batch_size: 32 accumulate: 1 lease_batches: 1 evaluate: true "
      "quarantine_after: 20 shuffle: true balance: SPEED global_batch: true } "
      "optimizer { sgd { } learning_rate: 0.1 schedule { gamma: 0.1 by: APPLIED } } "
      "consistency { mode: ASYNC staleness_bound: 1 backup_workers: 0 lag { free_lag: 1 "
      "max_lag: 2 } prefetch: false stop_stale: true progress_timeout: 600 apply: WHOLE_BATCH "
      "patience: 1 } "
      "wire { block_bytes: 1048576 push { } pull { } shared_memory: true } membership { "
      "lease_seconds: 10 } durability { checkpoint_seconds: 60 keep: 3 }");
}

TEST(JobSpecTest, FillsInDefaultsOfTheChosenParts) {
  EXPECT_EQ(Normalized("model { name: 'mlp' }").model().ShortDebugString(),
            "name: \"mlp\" hidden: 128");
  EXPECT_EQ(Normalized("model { name: 'transformer' }").model().transformer().ShortDebugString(),
            "layers: 2 heads: 4 width: 128 context: 128");
  EXPECT_EQ(Normalized("data { source: 'csv' }").data().ShortDebugString(),
            "source: \"csv\" csv { test_fraction: 0.1 }");
  EXPECT_EQ(Normalized("data { source: 'images' images { height: 32 } }").data().ShortDebugString(),
            "source: \"images\" images { height: 32 width: 32 channels: 3 }");
  EXPECT_EQ(Normalized("optimizer { adam {} }").optimizer().adam().ShortDebugString(),
            "beta1: 0.9 beta2: 0.999 epsilon: 1e-08");
  EXPECT_EQ(Normalized("optimizer { adamw {} }").optimizer().adamw().ShortDebugString(),
            "beta1: 0.9 beta2: 0.999 epsilon: 1e-08");
  EXPECT_EQ(Normalized("optimizer { adagrad {} }").optimizer().adagrad().ShortDebugString(),
            "epsilon: 1e-10");
  EXPECT_EQ(Normalized("optimizer { rmsprop {} }").optimizer().rmsprop().ShortDebugString(),
            "alpha: 0.99 epsilon: 1e-08");
  EXPECT_EQ(
      Normalized("optimizer { group { pattern: '*' } }").optimizer().group(0).ShortDebugString(),
      "pattern: \"*\" learning_rate_factor: 1");
  EXPECT_EQ(Normalized("wire { push { kind: TOP_K } }").wire().push().ShortDebugString(),
            "kind: TOP_K fraction: 0.01");
  EXPECT_EQ(
      Normalized("workers: 5 consistency { mode: ASYNC }").consistency().lag().ShortDebugString(),
      "free_lag: 5 max_lag: 10");
  EXPECT_EQ(Normalized("workers: 5 consistency { mode: ASYNC prefetch: false }")
                .consistency()
                .lag()
                .ShortDebugString(),
            "free_lag: 4 max_lag: 10");
}

TEST(JobSpecTest, ComputesInFloat32ByDefault) {
  EXPECT_EQ(Normalized("").training().precision(), TrainingSpec::FLOAT32);
  EXPECT_EQ(Normalized("training { precision: TF32 }").training().precision(), TrainingSpec::TF32);
  EXPECT_EQ(Normalized("training { precision: FLOAT16 }").training().precision(),
            TrainingSpec::FLOAT16);
  JobSpec job = FromText("");
  ASSERT_TRUE(ApplyOverride(&job, "training.precision=BFLOAT16").ok());
  EXPECT_EQ(job.training().precision(), TrainingSpec::BFLOAT16);
  EXPECT_FALSE(ApplyOverride(&job, "training.precision=FLOAT8").ok());
  // Programs of a newer version may send a value that this program does not know.
  job.mutable_training()->set_precision(static_cast<TrainingSpec::Precision>(9));
  ExpectMessage(NormalizeJobSpec(job).status(),
                "job field training.precision is 9; expected a value of Precision");
}

TEST(JobSpecTest, PrefetchesOnlyIfStalenessIsAllowed) {
  // If the field is unset, the workers measure whether prefetching helps.
  EXPECT_FALSE(Normalized("consistency { mode: ASYNC }").consistency().has_prefetch());
  EXPECT_FALSE(
      Normalized("consistency { mode: ASYNC staleness_bound: -1 }").consistency().has_prefetch());
  EXPECT_TRUE(Normalized("consistency { mode: ASYNC prefetch: true }").consistency().prefetch());
  EXPECT_TRUE(
      Normalized("consistency { mode: ASYNC staleness_bound: 0 }").consistency().has_prefetch());
  EXPECT_FALSE(
      Normalized("consistency { mode: ASYNC staleness_bound: 0 }").consistency().prefetch());
  EXPECT_FALSE(Normalized("consistency { mode: SYNC }").consistency().prefetch());
  const std::string message =
      "consistency.prefetch is true; expected false except in ASYNC with apply EACH_PUSH and a "
      "staleness_bound other than 0: otherwise each step needs the result of the previous step";
  ExpectRefused("consistency { mode: ASYNC staleness_bound: 0 prefetch: true }", message);
  ExpectRefused("consistency { mode: SYNC prefetch: true }", message);
}

TEST(JobSpecTest, StopsStaleStepsOnlyIfGradientsCanBeTooLate) {
  EXPECT_FALSE(Normalized("consistency { mode: ASYNC }").consistency().stop_stale());
  EXPECT_FALSE(Normalized("consistency { mode: SYNC }").consistency().stop_stale());
  EXPECT_TRUE(Normalized("workers: 2 consistency { mode: SYNC backup_workers: 1 }")
                  .consistency()
                  .stop_stale());
  EXPECT_TRUE(
      Normalized("consistency { mode: ASYNC lag { policy: REJECT } }").consistency().stop_stale());
  EXPECT_FALSE(Normalized("consistency { mode: ASYNC lag { policy: REJECT } stop_stale: false }")
                   .consistency()
                   .stop_stale());
  for (const char* mode : {"ASYNC", "SYNC"}) {
    ExpectRefused(
        absl::StrCat("consistency { stop_stale: true mode: ", mode, " }"),
        "consistency.stop_stale is true; expected false except in SYNC with backup_workers and "
        "in ASYNC with a staleness_bound in updates or the lag policy REJECT: otherwise "
        "gradients are never too late");
  }
}

TEST(JobSpecTest, SetsAGraceTimeOnlyWithBackupWorkers) {
  const auto part = [](const std::string& text) {
    return Normalized("workers: 3 consistency { " + text + "}").consistency().grace_part();
  };
  EXPECT_EQ(part("backup_workers: 1 "), 0.5);
  EXPECT_EQ(part("backup_workers: 1 grace_part: 0 "), 0);
  EXPECT_EQ(part(""), 0);
  EXPECT_EQ(part("mode: ASYNC backup_workers: 1 "), 0);
  ExpectRefused("consistency { grace_part: 0.5 }",
                "consistency.grace_part is 0.5; expected 0 except in SYNC with backup_workers: "
                "otherwise rounds wait for all workers");
  ExpectRefused("consistency { grace_part: -1 }",
                "consistency.grace_part is -1; expected 0 to 100");
}

TEST(JobSpecTest, TheProgressTimeoutIsTenMinutesByDefault) {
  EXPECT_EQ(Normalized("").consistency().progress_timeout(), 600);
  EXPECT_EQ(Normalized("consistency { progress_timeout: 0 }").consistency().progress_timeout(), 0);
  ExpectRefused("consistency { progress_timeout: -1 }",
                "consistency.progress_timeout is -1; expected 0 to 1e+06");
}

TEST(JobSpecTest, AScheduleOverTheWholeJobIsBySamplesByDefault) {
  const auto by = [](const std::string& text) {
    return Normalized("optimizer { schedule { " + text + " } }").optimizer().schedule().by();
  };
  EXPECT_EQ(by("shape: COSINE"), ScheduleSpec::SAMPLES);
  EXPECT_EQ(by("shape: COSINE total_steps: 9"), ScheduleSpec::APPLIED);
  EXPECT_EQ(by("shape: COSINE by: APPLIED"), ScheduleSpec::APPLIED);
  EXPECT_EQ(by("shape: STEP step_size: 3"), ScheduleSpec::APPLIED);
  EXPECT_EQ(by("shape: STEP step_size: 3 by: SAMPLES"), ScheduleSpec::SAMPLES);
  // CompleteJobSpec() fills in the number of steps. That is not an explicit length, so a second
  // normalization must still choose SAMPLES.
  JobSpec job = Normalized("optimizer { schedule { shape: COSINE } }");
  ASSERT_TRUE(CompleteJobSpec(&job, 1000).ok());
  const absl::StatusOr<JobSpec> again = NormalizeJobSpec(job);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->optimizer().schedule().by(), ScheduleSpec::SAMPLES);
}

TEST(JobSpecTest, MomentumIsInTheWorkerByDefaultIfGradientsMayBeStale) {
  const auto at = [](const std::string& text, const char* mode = "ASYNC") {
    const SgdSpec sgd =
        Normalized(absl::StrCat(text, " consistency { mode: ", mode, " }")).optimizer().sgd();
    return sgd.has_momentum_at() ? SgdSpec::MomentumAt_Name(sgd.momentum_at()) : "not said";
  };
  EXPECT_EQ(at("workers: 2 optimizer { sgd { momentum: 0.9 } }"), "WORKER");
  EXPECT_EQ(at("workers: 2 optimizer { sgd { momentum: 0.9 nesterov: true } }"), "WORKER");
  EXPECT_EQ(at("workers: 2"), "not said") << "without momentum";
  EXPECT_EQ(at("optimizer { sgd { momentum: 0.9 } }"), "SERVER") << "as torch.optim";
  EXPECT_EQ(at("workers: 2 optimizer { sgd { momentum: 0.9 dampening: 0.1 } }"), "SERVER");
  EXPECT_EQ(at("workers: 2 optimizer { sgd { momentum: 0.9 momentum_at: SERVER } }"), "SERVER");
  EXPECT_EQ(at("optimizer { sgd { momentum: 0.9 momentum_at: WORKER } }"), "WORKER");
  EXPECT_EQ(at("workers: 2 optimizer { sgd { momentum: 0.9 } }", "SYNC"), "SERVER");
  for (const char* nesterov : {"", "nesterov: true ", "nesterov: false "}) {
    EXPECT_EQ(
        at(absl::StrCat("optimizer { sgd { momentum: 0.9 ", nesterov, "momentum_at: DELAYED } } ",
                        "local { steps: 1 inner { learning_rate: 1 } }")),
        "DELAYED");
  }
  const std::string expected =
      "; expected SERVER, or ASYNC with apply EACH_PUSH, a momentum above 0 and a dampening of 0";
  for (const char* at : {"WORKER", "DELAYED"}) {
    for (const char* text : {"optimizer { sgd { momentum: 0.9 momentum_at: $ } } "
                             "consistency { mode: SYNC }",
                             "optimizer { sgd { momentum_at: $ } } consistency { mode: ASYNC }",
                             "optimizer { sgd { momentum: 0.9 dampening: 0.1 momentum_at: $ } } "
                             "consistency { mode: ASYNC }"}) {
      ExpectRefused(absl::StrReplaceAll(text, {{"$", at}}),
                    absl::StrCat("optimizer.sgd.momentum_at is ", at, expected));
    }
  }
  ExpectRefused(
      "optimizer { sgd { momentum: 0.9 momentum_at: DELAYED } } consistency { mode: ASYNC }",
      "optimizer.sgd.momentum_at is DELAYED; expected SERVER or WORKER without local steps");
}

TEST(JobSpecTest, NormalizationKeepsExplicitValues) {
  const std::string text =
      "name: \"n-1_.x\" seed: 0 workers: 3 model { name: \"mlp\" hidden: 7 hidden: 8 } "
      "data { source: \"idx\" path: \"/\\303\\251\" train_samples: 5 } "
      "training { epochs: 2 batch_size: 8 accumulate: 2 clip_norm: 1.5 lease_batches: 6 "
      "max_pushes: 9 evaluate: false nonfinite: STOP_JOB quarantine_after: 0 "
      "best_by: \"loss\" shuffle: false balance: EQUAL global_batch: false } "
      "optimizer { adam { beta1: 0 beta2: 0.5 epsilon: 0.001 } learning_rate: 0.25 "
      "weight_decay: 0.5 schedule { shape: COSINE warmup_steps: 1 gamma: 0.5 total_steps: 10 "
      "by: SAMPLES } "
      "group { pattern: \"*\" learning_rate_factor: 0 weight_decay: 0 } } "
      "consistency { mode: ASYNC staleness_bound: 0 backup_workers: 2 lag { policy: REJECT "
      "free_lag: 3 "
      "max_lag: 1 } prefetch: false stop_stale: true progress_timeout: 7 apply: EACH_PUSH } "
      "wire { block_bytes: 64 push { kind: TOP_K fraction: 0.25 } "
      "pull { kind: INT8 } shared_memory: false } membership { lease_seconds: 0.1 } "
      "durability { level: LOG checkpoint_seconds: 0 checkpoint_steps: 100 keep: 1 copies: 1 }";
  EXPECT_EQ(Normalized(text).ShortDebugString(), text);
}

TEST(JobSpecTest, NormalizingTwiceChangesNothingMore) {
  for (const char* text :
       {"", "model { name: 'transformer' } data { source: 'csv' }",
        "consistency { mode: ASYNC } training { accumulate: 3 }", "workers: 40"}) {
    const JobSpec once = Normalized(text);
    const absl::StatusOr<JobSpec> twice = NormalizeJobSpec(once);
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_EQ(twice->ShortDebugString(), once.ShortDebugString());
  }
}

std::string GetRule(const JobSpec& job) {
  const ConsistencySpec& consistency = job.consistency();
  return consistency.mode() == ConsistencySpec::SYNC
             ? "SYNC"
             : ConsistencySpec::Apply_Name(consistency.apply());
}

TEST(JobSpecTest, TheDefaultUpdateRuleIsWholeBatch) {
  EXPECT_EQ(GetRule(Normalized("workers: 3")), "WHOLE_BATCH");
  EXPECT_EQ(GetRule(Normalized("consistency { staleness_bound: 0 }")), "WHOLE_BATCH");
  EXPECT_EQ(GetRule(Normalized("consistency { mode: SYNC }")), "SYNC");
  // Job files from before `apply` existed set only the mode.
  EXPECT_EQ(GetRule(Normalized("consistency { mode: ASYNC }")), "EACH_PUSH");
  EXPECT_EQ(Normalized("consistency { mode: ASYNC }").consistency().staleness_bound(), 4);
  EXPECT_EQ(GetRule(Normalized("workers: 3 consistency { backup_workers: 1 }")), "SYNC");
  EXPECT_EQ(GetRule(Normalized("local { steps: 2 inner { learning_rate: 1 } }")), "SYNC");
  // Each of these fields works only with EACH_PUSH, so it selects this rule.
  EXPECT_EQ(GetRule(Normalized("consistency { prefetch: true }")), "EACH_PUSH");
  EXPECT_EQ(GetRule(Normalized("consistency { lag { policy: WEIGH } }")), "EACH_PUSH");
  EXPECT_EQ(GetRule(Normalized("optimizer { sgd { momentum: 0.9 momentum_at: WORKER } }")),
            "EACH_PUSH");
}

TEST(JobSpecTest, ErrorNamesTheFieldIncompatibleWithWholeBatch) {
  const auto whole = [](const std::string& more, const std::string& rest = "") {
    return "workers: 3 consistency { apply: WHOLE_BATCH " + more + " } " + rest;
  };
  ExpectRefused(whole("prefetch: true"),
                "consistency.apply is WHOLE_BATCH; expected EACH_PUSH because of "
                "consistency.prefetch");
  ExpectRefused(whole("lag { policy: REJECT }"),
                "consistency.apply is WHOLE_BATCH; expected EACH_PUSH because of "
                "consistency.lag.policy");
  ExpectRefused(whole("mode: ASYNC", "local { steps: 2 inner {} }"),
                "consistency.apply is WHOLE_BATCH; expected EACH_PUSH because of local");
  ExpectRefused(whole("", "optimizer { sgd { momentum: 0.9 momentum_at: WORKER } }"),
                "consistency.apply is WHOLE_BATCH; expected EACH_PUSH because of "
                "optimizer.sgd.momentum_at");
  ExpectRefused(whole("mode: ASYNC backup_workers: 1"),
                "consistency.backup_workers is 1; expected 0 to 0");
  ExpectRefused("consistency { mode: SYNC apply: WHOLE_BATCH }",
                "consistency.apply is WHOLE_BATCH; expected no value in mode SYNC");
  ExpectRefused("consistency { mode: SYNC patience: 1 }",
                "consistency.patience is 1; expected no value except in mode ASYNC with apply "
                "WHOLE_BATCH");
  ExpectRefused("consistency { patience: 0.4 }", "consistency.patience is 0.4; expected 0.5 to 10");
  ExpectRefused("consistency { staleness_bound: 1001 }",
                "consistency.staleness_bound is 1001; expected -1 to 1000");
}

TEST(JobSpecTest, DefaultsMatchTrainingInOneProcess) {
  struct Case {
    const char* text;
    const char* becomes;
  };
  // Setting one field must not change the defaults of the others.
  for (const auto& [text, becomes] :
       {Case{"", "WHOLE_BATCH SPEED 1"}, Case{"consistency { mode: SYNC }", "SYNC SPEED 1"},
        Case{"training { balance: EQUAL }", "WHOLE_BATCH EQUAL 1"},
        Case{"training { global_batch: false }", "WHOLE_BATCH SPEED 0"},
        Case{"consistency { mode: ASYNC staleness_bound: -1 } "
             "training { balance: EQUAL global_batch: false }",
             "EACH_PUSH EQUAL 0"}}) {
    const JobSpec job = Normalized(text);
    EXPECT_EQ(absl::StrCat(GetRule(job), " ", TrainingSpec::Balance_Name(job.training().balance()),
                           " ", job.training().global_batch()),
              becomes)
        << text;
  }
}

TEST(JobSpecTest, TheDefaultBatchCoversEveryWorker) {
  const auto batch_size = [](const std::string& text) {
    return Normalized(text).training().batch_size();
  };
  EXPECT_EQ(batch_size("workers: 32"), 32);
  EXPECT_EQ(batch_size("workers: 40"), 40);
  EXPECT_EQ(batch_size("workers: 40 training { batch_size: 8 }"), 40);
  EXPECT_EQ(batch_size("workers: 40 training { batch_size: 8 global_batch: false }"), 8);
  ExpectRefused("workers: 40 training { batch_size: 0 }",
                "training.batch_size is 0; expected 1 to 1048576");
}

TEST(JobSpecTest, ErrorNamesTheFieldTheValueAndTheExpectation) {
  ExpectRefused("training { batch_size: 0 }", "training.batch_size is 0; expected 1 to 1048576");
  ExpectRefused(
      "data { csv { label_column: 'kind' target_column: 'price' } }",
      "data.csv.label_column is \"kind\"; expected no value together with data.csv.target_column: "
      "a table predicts a class or numbers, not both");
  ExpectRefused("workers: 5000", "workers is 5000; expected 1 to 4096");
  ExpectRefused("workers: -2147483648", "workers is -2147483648; expected 1 to 4096");
  ExpectRefused("name: 'a b'", "name is \"a b\"; expected letters, digits, '-', '_' and '.'");
  ExpectRefused("optimizer { learning_rate: -1 }",
                "optimizer.learning_rate is -1; expected a number above 0 that float32 can hold");
  ExpectRefused("optimizer { sgd { nesterov: true } }",
                "optimizer.sgd.nesterov is true; expected false, or a momentum above 0 and a "
                "dampening of 0");
  ExpectRefused("optimizer { group { pattern: '*' } group {} }",
                "optimizer.group.1.pattern is \"\"; expected a pattern such as *.bias");
  ExpectRefused(
      "model { transformer { heads: 3 } }",
      "model.transformer.heads is 3; expected a divisor of model.transformer.width (128)");
  ExpectRefused("workers: 3 consistency { backup_workers: 3 }",
                "consistency.backup_workers is 3; expected 0 to 2");
  ExpectRefused("wire { block_bytes: 66 }", "wire.block_bytes is 66; expected a multiple of 4");
  ExpectRefused("wire { push { kind: TOP_K fraction: 0.75 } }",
                "wire.push.fraction is 0.75; expected a number above 0 and at most 0.5");
  ExpectRefused("wire { pull { kind: TOP_K } }",
                "wire.pull.kind is TOP_K; expected FLOAT32, BFLOAT16 or INT8: a worker "
                "needs all values");
  ExpectRefused("training { accumulate: 2 lease_batches: 3 } consistency { mode: ASYNC }",
                "training.lease_batches is 3; expected a multiple of training.accumulate (2)");
  ExpectRefused("optimizer { schedule { shape: STEP } }",
                "optimizer.schedule.step_size is 0; expected 1 to 1099511627776");
}

TEST(JobSpecTest, RefusesAJobWithoutALearningRate) {
  ExpectMessage(NormalizeJobSpec(JobSpec()).status(),
                "job field optimizer.learning_rate is missing or 0; expected a number above 0 that "
                "float32 can hold");
}

TEST(JobSpecTest, ReportsTheFirstOfSeveralErrors) {
  ExpectRefused("training { batch_size: -1 } workers: -1", "workers is -1; expected 1 to 4096");
}

TEST(JobSpecTest, ChecksTheRangeOfEveryNumber) {
  ExpectLimits("workers", "1", "0", "4096", "4097");
  ExpectLimits("model.hidden", "1", "0", "1048576", "1048577");
  ExpectLimits("model.transformer.layers", "1", "0", "1000", "1001");
  ExpectLimits("model.transformer.heads", "1", "-1", "128", "1001");
  ExpectLimits("model.transformer.width", "4", "0", "65536", "65540");
  ExpectLimits("model.transformer.context", "1", "0", "65536", "65537");
  ExpectLimits("data.train_samples", "0", "-1", "1099511627776", "1099511627777");
  ExpectLimits("data.test_samples", "0", "-1", "1099511627776", "1099511627777");
  ExpectLimits("data.csv.test_fraction", "0.001", "0", "0.999", "1");
  ExpectLimits("data.tokens.vocabulary", "2", "1", "16777216", "16777217");
  ExpectLimits("data.images.height", "1", "0", "4096", "4097");
  ExpectLimits("data.images.width", "1", "0", "4096", "4097");
  ExpectLimits("data.images.channels", "1", "2", "3", "4");
  ExpectLimits("training.epochs", "1", "0", "1048576", "1048577");
  ExpectLimits("training.batch_size", "1", "0", "1048576", "1048577");
  ExpectLimits("training.accumulate", "1", "0", "1048576", "1048577");
  ExpectLimits("training.clip_norm", "0", "-0.1", "1e30", "1e31");
  ExpectLimits("training.lease_batches", "1", "0", "1048576", "1048577");
  ExpectLimits("training.max_pushes", "0", "-1", "1099511627776", "1099511627777");
  ExpectLimits("optimizer.learning_rate", "1e-30", "1e-31", "1e30", "1e31");
  ExpectLimits("optimizer.weight_decay", "0", "-1", "1e30", "1e31");
  ExpectLimits("optimizer.sgd.momentum", "0", "-0.1", "1", "1.1");
  ExpectLimits("optimizer.sgd.dampening", "0", "-0.1", "1", "1.1");
  ExpectLimits("optimizer.adam.beta1", "0", "-0.1", "0.999", "1");
  ExpectLimits("optimizer.adam.beta2", "0", "-0.1", "0.999", "1");
  ExpectLimits("optimizer.adam.epsilon", "1e-30", "0", "1", "1e31");
  ExpectLimits("optimizer.adamw.beta1", "0", "-0.1", "0.999", "1");
  ExpectLimits("optimizer.adamw.beta2", "0", "-0.1", "0.999", "1");
  ExpectLimits("optimizer.adamw.epsilon", "1e-30", "0", "1", "1e31");
  ExpectLimits("optimizer.adagrad.lr_decay", "0", "-1", "1e30", "1e31");
  ExpectLimits("optimizer.adagrad.epsilon", "1e-30", "0", "1", "1e31");
  ExpectLimits("optimizer.adagrad.initial_accumulator", "0", "-1", "1e30", "1e31");
  ExpectLimits("optimizer.rmsprop.alpha", "0", "-0.1", "1", "1.1");
  ExpectLimits("optimizer.rmsprop.epsilon", "1e-30", "0", "1", "1e31");
  ExpectLimits("optimizer.rmsprop.momentum", "0", "-0.1", "1", "1.1");
  ExpectLimits("optimizer.schedule.warmup_steps", "0", "-1", "1099511627776", "1099511627777");
  ExpectLimits("optimizer.schedule.step_size", "0", "-1", "1099511627776", "1099511627777");
  ExpectLimits("optimizer.schedule.gamma", "1e-30", "0", "1", "1e31");
  ExpectLimits("optimizer.schedule.total_steps", "0", "-1", "9223372036854775807", "-2");
  ExpectLimits("optimizer.schedule.final_fraction", "0", "-0.1", "1", "1.1");
  ExpectLimits("consistency.staleness_bound", "-1", "-2", "2147483647", "-3");
  ExpectLimits("consistency.backup_workers", "0", "-1", "4095", "4096");
  ExpectLimits("consistency.lag.free_lag", "1", "0", "1099511627776", "1099511627777");
  ExpectLimits("consistency.lag.max_lag", "1", "0", "1099511627776", "1099511627777");
  ExpectLimits("wire.block_bytes", "64", "60", "67108864", "67108868");
  ExpectLimits("wire.push.fraction", "1e-30", "0", "0.5", "0.51");
  ExpectLimits("wire.pull.fraction", "1e-30", "-0.1", "0.5", "1");
  ExpectLimits("membership.lease_seconds", "0.1", "0.09", "3600", "3601");
  ExpectLimits("training.quarantine_after", "0", "-1", "1048576", "1048577");
  ExpectLimits("training.early_stopping.patience", "0", "-1", "1048576", "1048577");
  ExpectLimits("training.early_stopping.min_delta", "0", "-1", "1e9", "-0.1");
  ExpectLimits("durability.checkpoint_seconds", "0", "-0.1", "86400", "86401");
  ExpectLimits("durability.checkpoint_steps", "0", "-1", "1099511627776", "1099511627777");
  ExpectLimits("durability.keep", "1", "0", "1000", "1001");
  ExpectLimits("durability.copies", "0", "-1", "1", "2");
  ExpectRefused(
      "durability { level: NONE copies: 1 }",
      "durability.copies is 1; expected 0 with durability.level NONE, which stores nothing "
      "to copy");
}

TEST(JobSpecTest, RefusesNumbersThatAreNotFinite) {
  for (const char* number : {"nan", "inf", "-inf"}) {
    for (const char* text :
         {"optimizer { learning_rate: $ }", "optimizer { weight_decay: $ }",
          "optimizer { sgd { momentum: $ } }", "optimizer { adam { beta1: $ } }",
          "optimizer { rmsprop { alpha: $ } }", "optimizer { schedule { final_fraction: $ } }",
          "optimizer { group { pattern: '*' learning_rate_factor: $ } }",
          "optimizer { group { pattern: '*' weight_decay: $ } }", "training { clip_norm: $ }",
          "data { csv { test_fraction: $ } }", "membership { lease_seconds: $ }",
          "durability { checkpoint_seconds: $ }", "wire { push { fraction: $ } }"}) {
      std::string filled = text;
      filled.replace(filled.find('$'), 1, number);
      EXPECT_EQ(NormalizeJobSpec(FromText(filled)).status().code(),
                absl::StatusCode::kInvalidArgument)
          << filled;
    }
  }
}

TEST(JobSpecTest, RefusesInvalidText) {
  for (const std::string& bad :
       {std::string("\xff"), std::string("\xe2\x82"), std::string("\xc0\x80"),
        std::string("\xe0\x80\x80"), std::string("\xed\xa0\x80"), std::string("\xf4\x90\x80\x80"),
        std::string("\x80"), std::string("a\0b", 3), std::string("a\nb"), std::string(4097, 'x')}) {
    JobSpec job = FromText("");
    job.mutable_data()->set_path(bad);
    const absl::Status status = NormalizeJobSpec(job).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), StartsWith("job field data.path is "));
  }
  JobSpec job = FromText("optimizer { group { pattern: '*' } group {} }");
  job.mutable_optimizer()->mutable_group(1)->set_pattern("\xff");
  ExpectMessage(NormalizeJobSpec(job).status(),
                "job field optimizer.group.1.pattern is \"\\xff\"; expected UTF-8 text without "
                "control characters");
  // Normalization also checks the elements of a list.
  job = FromText("data { csv { target_column: 'price' } }");
  job.mutable_data()->mutable_csv()->add_target_column("\xff");
  ExpectMessage(NormalizeJobSpec(job).status(),
                "job field data.csv.target_column.1 is \"\\xff\"; expected UTF-8 text without "
                "control characters");
}

TEST(JobSpecTest, AcceptsTextInEveryLanguage) {
  JobSpec job = FromText("");
  job.mutable_data()->set_path("/\u65e5\u672c/\u00e9/\U0001f600");
  EXPECT_TRUE(NormalizeJobSpec(job).ok()) << NormalizeJobSpec(job).status();
}

TEST(JobSpecTest, RefusesAnUnknownEnumValue) {
  ExpectRefused("consistency { mode: 7 }", "consistency.mode is 7; expected a value of Mode");
}

TEST(JobSpecTest, RefusesADuplicateHyperparameterName) {
  const JobSpec job = Normalized("hyperparameter { name: 'a' } hyperparameter { name: 'b' }");
  EXPECT_EQ(job.hyperparameter_size(), 2);
  ExpectRefused("hyperparameter { name: 'a' value: '1' } hyperparameter { name: 'a' value: '2' }",
                "hyperparameter.name is \"a\"; expected a unique name that is not empty");
  ExpectRefused("hyperparameter { value: '1' }",
                "hyperparameter.name is \"\"; expected a unique name that is not empty");
}

TEST(JobSpecTest, RefusesAGlobalBatchSmallerThanTheNumberOfWorkers) {
  const char* const kJob = "workers: 4 training { global_batch: true batch_size: 10 epochs: 2 } ";
  ExpectRefused("workers: 4 training { global_batch: true batch_size: 3 }",
                "training.batch_size is 3; expected at least workers (4) with "
                "training.global_batch");
  JobSpec async = Normalized(absl::StrCat(kJob, "consistency { mode: ASYNC }"));
  ASSERT_TRUE(CompleteJobSpec(&async, /*train_samples=*/95).ok());
  EXPECT_EQ(async.optimizer().schedule().total_steps(), 80) << "pushes";
  JobSpec sync = Normalized(absl::StrCat(kJob, "consistency { mode: SYNC }"));
  ASSERT_TRUE(CompleteJobSpec(&sync, /*train_samples=*/95).ok());
  EXPECT_EQ(sync.optimizer().schedule().total_steps(), 20) << "rounds";
}

TEST(JobSpecTest, RoundsSampleLeasesToWholePushes) {
  const auto async = [](const std::string& training) {
    return Normalized("consistency { mode: ASYNC } training { " + training + " }").training();
  };
  EXPECT_EQ(async("").lease_batches(), 4);
  EXPECT_EQ(async("accumulate: 3").lease_batches(), 6);
  EXPECT_EQ(async("accumulate: 9").lease_batches(), 9);
  EXPECT_EQ(Normalized("training { accumulate: 3 lease_batches: 5 } consistency { mode: SYNC }")
                .training()
                .lease_batches(),
            3);
}

TEST(JobSpecTest, FillsInTheNumberOfStepsOfTheJob) {
  const auto total_steps = [](const std::string& text, int64_t samples) {
    JobSpec job = Normalized(text);
    const absl::Status status = CompleteJobSpec(&job, samples);
    EXPECT_TRUE(status.ok()) << status;
    return job.optimizer().schedule().total_steps();
  };
  EXPECT_EQ(total_steps("training { batch_size: 10 }", 100), 10);
  EXPECT_EQ(total_steps("training { batch_size: 10 }", 101), 11);
  EXPECT_EQ(total_steps("training { batch_size: 10 epochs: 3 accumulate: 4 }", 101), 9);
  EXPECT_EQ(total_steps("training { batch_size: 10 max_pushes: 7 }", 100), 7);
  EXPECT_EQ(total_steps("training { batch_size: 10 max_pushes: 70 }", 100), 10);
  EXPECT_EQ(total_steps("workers: 4 training { batch_size: 10 }", 100), 10) << "rounds";
  const std::string sync =
      "workers: 4 consistency { mode: SYNC } training { global_batch: false batch_size: 10 ";
  EXPECT_EQ(total_steps(sync + "}", 100), 3);
  EXPECT_EQ(total_steps(sync + "epochs: 2 }", 100), 5);
  EXPECT_EQ(total_steps(sync + "max_pushes: 5 }", 100), 2);
  EXPECT_EQ(total_steps("optimizer { schedule { total_steps: 5 } }", 100), 5);
}

TEST(JobSpecTest, CountsStepsOfTheLargestJobWithoutOverflow) {
  JobSpec job = Normalized("training { batch_size: 1 epochs: 1048576 }");
  ASSERT_TRUE(CompleteJobSpec(&job, int64_t{1} << 40).ok());
  EXPECT_EQ(job.optimizer().schedule().total_steps(), int64_t{1} << 60);
  JobSpec pushes = Normalized(
      "workers: 4096 training { batch_size: 1 epochs: 1048576 } consistency { mode: ASYNC }");
  ASSERT_TRUE(CompleteJobSpec(&pushes, int64_t{1} << 40).ok());
  EXPECT_EQ(pushes.optimizer().schedule().total_steps(), int64_t{1} << 60) << "of a sample each";
  // Each number is within its limit, but the pushes of all slots would contain 2^72 samples.
  const std::string batches = "1048576 accumulate: 1048576 global_batch: false } ";
  const std::string local = "local { steps: 1048576 inner { learning_rate: 1 } }";
  ExpectRefused("workers: 4096 training { batch_size: " + batches + local,
                "local.steps is 1048576; expected a value with which the pushes of all "
                "workers contain at most 1152921504606846976 samples");
}

TEST(JobSpecTest, CannotCountStepsWithoutTrainingSamples) {
  JobSpec job = Normalized("");
  ExpectMessage(CompleteJobSpec(&job, 0),
                "there are 0 training samples; expected 1 to 1099511627776");
  EXPECT_FALSE(CompleteJobSpec(&job, std::numeric_limits<int64_t>::max()).ok());
}

TEST(JobSpecTest, RefusesAWarmUpAsLongAsTheCosineSchedule) {
  JobSpec job = Normalized(
      "training { batch_size: 10 } optimizer { schedule { shape: COSINE warmup_steps: 10 } }");
  JobSpec longer = job;
  ExpectMessage(CompleteJobSpec(&job, 100),
                "job field optimizer.schedule.warmup_steps is 10; expected less than total_steps "
                "(10)");
  EXPECT_TRUE(CompleteJobSpec(&longer, 101).ok());
}

TEST(JobSpecTest, LocalStepsHaveASeparateOptimizer) {
  const JobSpec job = Normalized(
      "workers: 2 local { steps: 4 inner { adamw {} learning_rate: 0.01 } } "
      "training { accumulate: 2 lease_batches: 8 } consistency { mode: ASYNC }");
  EXPECT_EQ(job.local().ShortDebugString(),
            "steps: 4 inner { adamw { beta1: 0.9 beta2: 0.999 epsilon: 1e-08 } learning_rate: 0.01 "
            "schedule { gamma: 0.1 by: SAMPLES } }");
  // Each lease is one push.
  EXPECT_EQ(job.training().lease_batches(), 2);
  EXPECT_FALSE(job.consistency().prefetch());
  EXPECT_EQ(NormalizeJobSpec(job)->ShortDebugString(), job.ShortDebugString());
}

TEST(JobSpecTest, CountsLocalSteps) {
  JobSpec job = Normalized(
      "workers: 2 training { epochs: 3 batch_size: 5 accumulate: 2 global_batch: false } "
      "consistency { mode: SYNC } local { steps: 4 inner { learning_rate: 0.01 } }");
  // Each push contains 40 samples, so an epoch of 100 samples takes three pushes. Three epochs take
  // nine pushes, which make five rounds of two slots.
  ASSERT_TRUE(CompleteJobSpec(&job, /*train_samples=*/100).ok());
  EXPECT_EQ(job.optimizer().schedule().total_steps(), 5);
  EXPECT_EQ(job.local().inner().schedule().total_steps(), 20);
  // Normalizing and completing a completed job does not change it.
  const JobSpec again = *NormalizeJobSpec(job);
  EXPECT_EQ(again.ShortDebugString(), job.ShortDebugString());
}

TEST(JobSpecTest, RefusesFieldsIncompatibleWithLocalSteps) {
  const std::string inner = "inner { learning_rate: 1 } ";
  ExpectRefused("local { " + inner + "}", "local.steps is 0; expected 1 to 1048576");
  ExpectRefused("local { steps: 1 }",
                "local.inner.learning_rate is missing or 0; expected a number above 0 that float32 "
                "can hold");
  ExpectRefused("local { steps: 1 inner { learning_rate: 1 sgd { momentum: 2 } } }",
                "local.inner.sgd.momentum is 2; expected 0 to 1");
  ExpectRefused("local { steps: 1 inner { learning_rate: 1 sgd { momentum_at: SERVER } } }",
                "local.inner.sgd.momentum_at is SERVER; expected no value: the inner optimizer "
                "runs only in the worker");
  ExpectRefused("local { steps: 1 inner { learning_rate: 1 schedule { by: APPLIED } } }",
                "local.inner.schedule.by is APPLIED; expected SAMPLES: workers may have taken "
                "different numbers of steps");
  ExpectRefused("workers: 2 consistency { mode: ASYNC } local { steps: 1 " + inner +
                    "} optimizer { sgd { momentum: 0.9 momentum_at: WORKER } }",
                "optimizer.sgd.momentum_at is WORKER; expected DELAYED or SERVER with local "
                "steps; set the workers' momentum in local.inner");
  ExpectRefused("consistency { mode: ASYNC prefetch: true } local { steps: 1 " + inner + "}",
                "consistency.prefetch is true; expected false with local steps, which start from "
                "the result of the previous push");
  ExpectRefused(
      "workers: 2 consistency { mode: SYNC backup_workers: 1 stop_stale: true } "
      "local { steps: 1 " +
          inner + "}",
      "consistency.stop_stale is true; expected false with local steps");
}

}  // namespace
}  // namespace torchps
