#include "torchps/job/job_spec.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/check.h"
#include "torchps/common/types.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/job/field_checker.h"
#include "torchps/job/local_steps.h"
#include "torchps/job/optimizer_fields.h"

namespace torchps {

namespace {

constexpr int64_t kMaxCount = int64_t{1} << 20;    // batches, epochs, widths
constexpr int64_t kMaxSamples = int64_t{1} << 40;  // keeps all products below 2^63
constexpr int64_t kMaxPushSamples = int64_t{1} << 60;
constexpr int kMaxImageSide = 4096;  // a batch of 32 such images needs 6 GiB as float32
constexpr int kMaxHiddenLayers = 1000;
constexpr int kMaxVocabulary = 1 << 24;  // far above the size of real vocabularies

void NormalizeTop(JobSpec* job, FieldChecker& check) {
  if (job->name().empty()) job->set_name("job");
  const bool plain = std::all_of(job->name().begin(), job->name().end(), [](char character) {
    return absl::ascii_isalnum(character) || character == '-' || character == '_' ||
           character == '.';
  });
  if (!plain) {
    check.Fail("name", absl::StrCat("\"", absl::CHexEscape(job->name()), "\""),
               "letters, digits, '-', '_' and '.'");
  }
  std::set<std::string> names;
  for (const HyperparameterSpec& each : job->hyperparameter()) {
    if (each.name().empty() || !names.insert(each.name()).second) {
      check.Fail("hyperparameter.name", absl::StrCat("\"", absl::CHexEscape(each.name()), "\""),
                 "a unique name that is not empty");
    }
  }
  if (!job->has_seed()) job->set_seed(1);
  if (!job->has_workers()) job->set_workers(1);
  check.Range("workers", job->workers(), 1, kMaxSlots);
}

void NormalizeModel(ModelSpec* model, FieldChecker& check) {
  if (model->name() == "mlp" && model->hidden().empty()) model->add_hidden(128);
  if (model->hidden_size() > kMaxHiddenLayers) {
    check.Fail("model.hidden", absl::StrCat("a list of ", model->hidden_size()),
               absl::StrCat("at most ", kMaxHiddenLayers));
  }
  for (const int32_t width : model->hidden()) {
    check.Range<int64_t>("model.hidden", width, 1, kMaxCount);
  }
  if (model->name() != "transformer" && !model->has_transformer()) return;
  TransformerSpec* transformer = model->mutable_transformer();
  if (!transformer->has_layers()) transformer->set_layers(2);
  if (!transformer->has_heads()) transformer->set_heads(4);
  if (!transformer->has_width()) transformer->set_width(128);
  if (!transformer->has_context()) transformer->set_context(128);
  check.Range("model.transformer.layers", transformer->layers(), 1, 1000);
  check.Range("model.transformer.heads", transformer->heads(), 1, 1000);
  check.Range("model.transformer.width", transformer->width(), 1, 65536);
  check.Range("model.transformer.context", transformer->context(), 1, 65536);
  if (transformer->heads() > 0 && transformer->width() % transformer->heads() != 0) {
    check.Fail("model.transformer.heads", transformer->heads(),
               absl::StrCat("a divisor of model.transformer.width (", transformer->width(), ")"));
  }
}

void NormalizeCsv(CsvSpec* csv, FieldChecker& check) {
  if (!csv->has_test_fraction()) csv->set_test_fraction(0.1);
  if (!(csv->test_fraction() > 0 && csv->test_fraction() < 1)) {
    check.Fail("data.csv.test_fraction", csv->test_fraction(), "above 0 and below 1");
  }
  if (!csv->label_column().empty() && csv->target_column_size() > 0) {
    check.Fail("data.csv.label_column", absl::StrCat("\"", csv->label_column(), "\""),
               "no value together with data.csv.target_column: a table predicts a class or "
               "numbers, not both");
  }
}

void NormalizeImages(ImagesSpec* images, FieldChecker& check) {
  if (!images->has_height()) images->set_height(64);
  if (!images->has_width()) images->set_width(images->height());
  if (!images->has_channels()) images->set_channels(3);
  check.Range("data.images.height", images->height(), 1, kMaxImageSide);
  check.Range("data.images.width", images->width(), 1, kMaxImageSide);
  if (images->channels() != 1 && images->channels() != 3) {
    check.Fail("data.images.channels", images->channels(), "1 (grey) or 3 (red, green, blue)");
  }
}

void NormalizeData(DataSpec* data, FieldChecker& check) {
  if (data->source().empty()) data->set_source("digits");
  check.Range<int64_t>("data.train_samples", data->train_samples(), 0, kMaxSamples);
  check.Range<int64_t>("data.test_samples", data->test_samples(), 0, kMaxSamples);
  if (data->source() == "digits") {
    if (data->train_samples() == 0) data->set_train_samples(6000);
    if (data->test_samples() == 0) data->set_test_samples(1000);
  }
  if (data->source() == "csv" || data->has_csv()) NormalizeCsv(data->mutable_csv(), check);
  if (data->source() == "images" || data->has_images()) {
    NormalizeImages(data->mutable_images(), check);
  }
  // 0 means that the vocabulary is derived from the files. A vocabulary of 1 would leave no token
  // to predict.
  if (const int32_t vocabulary = data->tokens().vocabulary(); vocabulary != 0) {
    check.Range("data.tokens.vocabulary", vocabulary, 2, kMaxVocabulary);
  }
  const int32_t bits = data->tokens().bits();
  if (bits != 0 && bits != 16 && bits != 32 && bits != 64) {
    check.Fail("data.tokens.bits", bits, "16, 32 or 64");
  }
}

void NormalizeTraining(TrainingSpec* training, bool leases_are_pushes, int32_t workers,
                       FieldChecker& check) {
  if (!training->has_epochs()) training->set_epochs(1);
  if (!training->has_batch_size()) training->set_batch_size(32);
  if (!training->has_accumulate()) training->set_accumulate(1);
  check.Range<int64_t>("training.epochs", training->epochs(), 1, kMaxCount);
  check.Range<int64_t>("training.batch_size", training->batch_size(), 1, kMaxCount);
  check.Range<int64_t>("training.accumulate", training->accumulate(), 1, kMaxCount);
  check.NotNegative("training.clip_norm", training->clip_norm());
  if (!check.status().ok()) return;

  const int32_t accumulate = training->accumulate();
  if (leases_are_pushes) {
    training->set_lease_batches(accumulate);
  } else if (!training->has_lease_batches()) {
    constexpr int32_t kLeaseBatches = 4;
    training->set_lease_batches((kLeaseBatches + accumulate - 1) / accumulate * accumulate);
  }
  check.Range<int64_t>("training.lease_batches", training->lease_batches(), 1, kMaxCount);
  if (training->lease_batches() % accumulate != 0) {
    check.Fail("training.lease_batches", training->lease_batches(),
               absl::StrCat("a multiple of training.accumulate (", accumulate, ")"));
  }
  check.Range<int64_t>("training.max_pushes", training->max_pushes(), 0, kMaxSamples);
  if (!training->has_balance()) training->set_balance(TrainingSpec::SPEED);
  if (!training->has_global_batch()) {
    training->set_global_batch(true);
    // Each worker needs at least one sample. If global_batch is set explicitly, a smaller batch is
    // an error instead (see NormalizeJobSpec).
    training->set_batch_size(std::max(training->batch_size(), workers));
  }
  if (!training->has_evaluate()) training->set_evaluate(true);
  if (!training->has_quarantine_after()) training->set_quarantine_after(20);
  if (!training->has_shuffle()) training->set_shuffle(true);
  const EarlyStoppingSpec& stopping = training->early_stopping();
  check.Range<int64_t>("training.early_stopping.patience", stopping.patience(), 0, kMaxCount);
  check.NotNegative("training.early_stopping.min_delta", stopping.min_delta());
  if (stopping.patience() > 0 && !training->evaluate()) {
    check.Fail("training.early_stopping.patience", stopping.patience(),
               "0 if training.evaluate is false");
  }
  check.Range<int64_t>("training.quarantine_after", training->quarantine_after(), 0, kMaxCount);
}

// Sets and checks the location of the momentum, which depends on the whole job.
void NormalizeMomentum(JobSpec* job, FieldChecker& check) {
  if (!job->optimizer().has_sgd()) return;
  SgdSpec* sgd = job->mutable_optimizer()->mutable_sgd();
  const bool may_leave =
      AppliesEachPush(job->consistency()) && sgd->momentum() > 0 && sgd->dampening() == 0;
  if (!sgd->has_momentum_at()) {
    // Without momentum the location is irrelevant.
    if (sgd->momentum() == 0) return;
    const SgdSpec::MomentumAt elsewhere = job->has_local() ? SgdSpec::DELAYED : SgdSpec::WORKER;
    sgd->set_momentum_at(may_leave && job->workers() > 1 ? elsewhere : SgdSpec::SERVER);
  }
  if (sgd->momentum_at() == SgdSpec::SERVER) return;
  const std::string& name = SgdSpec::MomentumAt_Name(sgd->momentum_at());
  if (!may_leave) {
    check.Fail("optimizer.sgd.momentum_at", name,
               "SERVER, or ASYNC with apply EACH_PUSH, a momentum above 0 and a dampening of 0");
  } else if (sgd->momentum_at() == SgdSpec::DELAYED && !HasLocalSteps(*job)) {
    check.Fail("optimizer.sgd.momentum_at", name, "SERVER or WORKER without local steps");
  }
}

// Sets and checks the fields for local steps. Must run before NormalizeConsistency, which derives
// defaults from them.
void NormalizeLocal(JobSpec* job, FieldChecker& check) {
  if (!HasLocalSteps(*job)) return;
  LocalSpec* local = job->mutable_local();
  check.Range<int64_t>("local.steps", local->steps(), 1, kMaxCount);
  if (!check.status().ok()) return;
  // The product cannot overflow because all factors were range-checked.
  if (SamplesOfPush(*job) > kMaxPushSamples / job->workers()) {
    check.Fail("local.steps", local->steps(),
               absl::StrCat("a value with which the pushes of all workers contain at most ",
                            kMaxPushSamples, " samples"));
  }
  OptimizerSpec* inner = local->mutable_inner();
  if (inner->sgd().has_momentum_at()) {
    check.Fail("local.inner.sgd.momentum_at", SgdSpec::MomentumAt_Name(inner->sgd().momentum_at()),
               "no value: the inner optimizer runs only in the worker");
  }
  ScheduleSpec* schedule = inner->mutable_schedule();
  if (!schedule->has_by()) schedule->set_by(ScheduleSpec::SAMPLES);
  if (schedule->by() != ScheduleSpec::SAMPLES) {
    check.Fail("local.inner.schedule.by", ScheduleSpec::By_Name(schedule->by()),
               "SAMPLES: workers may have taken different numbers of steps");
  }
  NormalizeOptimizer(inner, "local.inner", check);
  if (job->optimizer().sgd().momentum_at() == SgdSpec::WORKER) {
    check.Fail("optimizer.sgd.momentum_at", "WORKER",
               "DELAYED or SERVER with local steps; set the workers' momentum in local.inner");
  }
  const ConsistencySpec& consistency = job->consistency();
  if (consistency.prefetch()) {
    check.Fail("consistency.prefetch", "true",
               "false with local steps, which start from the result of the previous push");
  }
  if (consistency.stop_stale()) {
    check.Fail("consistency.stop_stale", "true", "false with local steps");
  }
  job->mutable_consistency()->set_prefetch(false);
  job->mutable_consistency()->set_stop_stale(false);
}

// Only TOP_K uses the fraction. For other kinds it is kept, but still range-checked.
void NormalizeEncoding(const std::string& field, EncodingSpec* encoding, FieldChecker& check) {
  const bool top_k = encoding->kind() == EncodingSpec::TOP_K;
  if (top_k && !encoding->has_fraction()) encoding->set_fraction(0.01);
  if (!encoding->has_fraction()) return;
  const double fraction = encoding->fraction();
  // The condition is written so that a NaN fails it.
  if (!(fraction > 0 && fraction <= 0.5)) {
    check.Fail(field + ".fraction", fraction, "a number above 0 and at most 0.5");
  }
}

void NormalizeWire(WireSpec* wire, FieldChecker& check) {
  if (!wire->has_block_bytes()) wire->set_block_bytes(1 << 20);
  check.Range<int64_t>("wire.block_bytes", wire->block_bytes(), 64, 64 << 20);
  if (wire->block_bytes() % static_cast<int64_t>(sizeof(float)) != 0) {
    check.Fail("wire.block_bytes", wire->block_bytes(), "a multiple of 4");
  }
  NormalizeEncoding("wire.push", wire->mutable_push(), check);
  NormalizeEncoding("wire.pull", wire->mutable_pull(), check);
  if (wire->pull().kind() == EncodingSpec::TOP_K) {
    check.Fail("wire.pull.kind", "TOP_K", "FLOAT32, BFLOAT16 or INT8: a worker needs all values");
  }
  if (!wire->has_shared_memory()) wire->set_shared_memory(true);
}

void NormalizeMembership(MembershipSpec* membership, FieldChecker& check) {
  if (!membership->has_lease_seconds()) membership->set_lease_seconds(10);
  check.Range("membership.lease_seconds", membership->lease_seconds(), 0.1, 3600.0);
}

void NormalizeDurability(DurabilitySpec* durability, FieldChecker& check) {
  if (!durability->has_checkpoint_seconds()) durability->set_checkpoint_seconds(60);
  check.Range("durability.checkpoint_seconds", durability->checkpoint_seconds(), 0.0, 86400.0);
  check.Range<int64_t>("durability.checkpoint_steps", durability->checkpoint_steps(), 0,
                       kMaxSamples);
  if (!durability->has_keep()) durability->set_keep(3);
  check.Range("durability.keep", durability->keep(), 1, 1000);
  check.Range("durability.copies", durability->copies(), 0, 1);
  if (durability->copies() > 0 && durability->level() == DurabilitySpec::NONE) {
    check.Fail("durability.copies", durability->copies(),
               "0 with durability.level NONE, which stores nothing to copy");
  }
}

int64_t DivideRoundingUp(int64_t dividend, int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

absl::Status CompleteSchedule(OptimizerSpec* optimizer, absl::string_view path, int64_t steps) {
  ScheduleSpec* schedule = optimizer->mutable_schedule();
  if (schedule->total_steps() == 0) schedule->set_total_steps(steps);
  if (schedule->shape() != ScheduleSpec::COSINE ||
      schedule->warmup_steps() < schedule->total_steps()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("job field ", path, ".schedule.warmup_steps is ", schedule->warmup_steps(),
                   "; expected less than total_steps (", schedule->total_steps(), ")"));
}

}  // namespace

absl::StatusOr<JobSpec> NormalizeJobSpec(JobSpec job) {
  FieldChecker check;
  check.StringsAndEnums(job);
  NormalizeTop(&job, check);
  // The defaults below depend on `workers`.
  if (!check.status().ok()) return check.status();
  NormalizeUpdateRule(&job, check);
  if (!check.status().ok()) return check.status();
  NormalizeModel(job.mutable_model(), check);
  NormalizeData(job.mutable_data(), check);
  NormalizeTraining(job.mutable_training(), LeasesArePushes(job), job.workers(), check);
  if (job.training().global_batch() && job.training().batch_size() < job.workers()) {
    check.Fail("training.batch_size", job.training().batch_size(),
               absl::StrCat("at least workers (", job.workers(), ") with training.global_batch"));
  }
  NormalizeOptimizer(job.mutable_optimizer(), "optimizer", check);
  NormalizeLocal(&job, check);
  NormalizeConsistency(job.mutable_consistency(), job.workers(), check);
  NormalizeMomentum(&job, check);
  NormalizeWire(job.mutable_wire(), check);
  NormalizeMembership(job.mutable_membership(), check);
  NormalizeDurability(job.mutable_durability(), check);
  if (!check.status().ok()) return check.status();
  return job;
}

absl::Status CompleteJobSpec(JobSpec* job, int64_t train_samples) {
  if (train_samples < 1 || train_samples > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", train_samples, " training samples; expected 1 to ", kMaxSamples));
  }
  const TrainingSpec& training = job->training();
  TPS_CHECK(training.batch_size() > 0 && training.accumulate() > 0 && job->workers() > 0,
            "the job is normalised");
  int64_t pushes = training.epochs() * DivideRoundingUp(train_samples, SamplesOfPush(*job));
  if (training.global_batch()) pushes *= job->workers();
  if (training.max_pushes() > 0) pushes = std::min<int64_t>(pushes, training.max_pushes());
  const int64_t of_each = DivideRoundingUp(pushes, job->workers());
  const absl::Status outer = CompleteSchedule(
      job->mutable_optimizer(), "optimizer", CollectsPushes(job->consistency()) ? of_each : pushes);
  if (!outer.ok() || !HasLocalSteps(*job)) return outer;
  return CompleteSchedule(job->mutable_local()->mutable_inner(), "local.inner",
                          of_each * StepsOfPush(*job));
}

namespace {

// Rule-of-thumb limits of the learning rate for a single worker. The limit for P workers in
// ASYNC is 1/P of it. Measured with three workers: for Adam 0.002 was best and 0.004 worse; for
// plain SGD 0.05 was best and 0.2 diverged.
constexpr double kMaxOfAdaptive = 0.01;
constexpr double kMaxOfSgd = 0.4;  // learning rate / (1 - momentum)

double MostOf(const OptimizerSpec& optimizer) {
  if (optimizer.has_adagrad()) return kMaxOfSgd;
  if (!optimizer.has_sgd()) return kMaxOfAdaptive;
  return kMaxOfSgd * (1 - optimizer.sgd().momentum());
}

}  // namespace

std::string RateHint(const JobSpec& job) {
  const int workers = job.workers();
  if (!AppliesEachPush(job.consistency()) || workers < 2) return "";
  // The rate of local steps multiplies differences of parameters, so the limits for gradients do
  // not apply.
  if (HasLocalSteps(job)) return "";
  // Workers that share a batch also share the rate (torchps/server/store/async_push.h).
  const int sharers = job.training().global_batch() ? workers : 1;
  const double most = MostOf(job.optimizer()) / workers * sharers;
  if (job.optimizer().learning_rate() <= most) return "";
  return absl::StrCat(
      "optimizer.learning_rate is ", job.optimizer().learning_rate(), ", probably too high for ",
      workers, " workers with consistency.apply EACH_PUSH, whose gradients are ", workers - 1,
      workers == 2 ? " update" : " updates", " late; use at most ", most,
      ", or consistency.apply=WHOLE_BATCH with "
      "training.global_batch=true, which tolerates the rate of one process "
      "(docs/guide.md)");
}

}  // namespace torchps
