#include "job/resumed_job.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "job/job_difference.h"

namespace torchps {
namespace {

struct Reason {
  absl::string_view field;  // or a prefix of several fields
  absl::string_view why;
};

constexpr Reason kReasons[] = {
    {"model", "the checkpoint contains the values of that model"},
    {"data", "the epoch's accounting covers the samples of this data"},
    {"seed", "it determines which samples of the epoch are already used"},
    {"training", "the remaining data leases depend on it"},
    {"optimizer", "the checkpoint contains that optimizer's state"},
    {"consistency.mode", "ASYNC counts each slot's pushes, and SYNC counts rounds"},
    {"consistency.apply", "learning rate and schedule count updates of that kind"},
    {"workers", "the schedule counts the batches and local steps of each worker"},
    {"wire.block_bytes", "the checkpoint is divided into blocks of that size"},
    {"durability.level", "the files on the disk were written for it"},
};

// Returns `before` with the fields that may change copied from `now`.
JobSpec Changed(const JobSpec& before, const JobSpec& now) {
  JobSpec job = before;
  job.set_name(now.name());
  job.mutable_model()->set_init_from(now.model().init_from());
  job.mutable_model()->set_init_partial(now.model().init_partial());

  TrainingSpec& training = *job.mutable_training();
  training.set_epochs(now.training().epochs());
  training.set_max_pushes(now.training().max_pushes());
  training.set_clip_norm(now.training().clip_norm());
  training.set_evaluate(now.training().evaluate());
  training.set_nonfinite(now.training().nonfinite());
  // Parameters, state and gradients are float32 with any precision.
  training.set_precision(now.training().precision());
  training.set_quarantine_after(now.training().quarantine_after());
  // If workers share each batch, the number of updates does not depend on the number of workers.
  if (before.training().global_batch() && !before.has_local()) job.set_workers(now.workers());

  // The push log must be replayed with the optimizer that produced it.
  if (before.durability().level() != DurabilitySpec::LOG) {
    OptimizerSpec& optimizer = *job.mutable_optimizer();
    optimizer.set_learning_rate(now.optimizer().learning_rate());
    optimizer.set_weight_decay(now.optimizer().weight_decay());
    *optimizer.mutable_schedule() = now.optimizer().schedule();
    for (int i = 0; i < optimizer.group_size() && i < now.optimizer().group_size(); ++i) {
      const std::string pattern = optimizer.group(i).pattern();
      *optimizer.mutable_group(i) = now.optimizer().group(i);
      optimizer.mutable_group(i)->set_pattern(pattern);
    }
  }

  *job.mutable_consistency() = now.consistency();
  job.mutable_consistency()->set_mode(before.consistency().mode());
  if (before.consistency().has_apply()) {
    job.mutable_consistency()->set_apply(before.consistency().apply());
  }
  *job.mutable_wire() = now.wire();
  job.mutable_wire()->set_block_bytes(before.wire().block_bytes());
  *job.mutable_membership() = now.membership();
  *job.mutable_durability() = now.durability();
  job.mutable_durability()->set_level(before.durability().level());
  return job;
}

}  // namespace

absl::Status CheckMayResume(const JobSpec& before, const JobSpec& now) {
  // Compare the mode first, because the defaults of other fields depend on it.
  JobSpec mode = now;
  mode.mutable_consistency()->set_mode(before.consistency().mode());
  absl::optional<JobDifference> difference = FirstJobDifference(mode, now);
  if (!difference.has_value()) difference = FirstJobDifference(Changed(before, now), now);
  if (!difference.has_value()) return absl::OkStatus();
  absl::string_view why = "the state on the disk depends on it";
  for (const Reason& reason : kReasons) {
    if (absl::StartsWith(difference->path, reason.field)) why = reason.why;
  }
  if (absl::StartsWith(difference->path, "optimizer") &&
      before.durability().level() == DurabilitySpec::LOG) {
    why = "durability.level is LOG, and the push log is replayed with that optimizer";
  }
  return absl::FailedPreconditionError(
      absl::StrCat("a resumed job cannot change ", difference->path, ", because ", why,
                   ": the job has ", difference->mine, ", this worker has ", difference->theirs));
}

}  // namespace torchps
