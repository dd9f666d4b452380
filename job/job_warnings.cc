#include "job/job_warnings.h"

#include "absl/strings/str_cat.h"
#include "job/consistency_fields.h"
#include "job/local_steps.h"

namespace torchps {
namespace {

// Rule-of-thumb limits for a single worker. P workers in ASYNC tolerate 1/P of them. Measured with
// three workers: for Adam 0.002 was best and 0.004 worse; for plain SGD 0.05 was best and 0.2
// diverged.
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
  // An outer learning rate is not comparable to a rate for gradients.
  if (HasLocalSteps(job)) return "";
  // Workers that share a batch also share the rate (server/store/async_push.h).
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
