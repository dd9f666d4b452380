#include "server/store/sample_scale.h"

#include "job/local_steps.h"

namespace torchps {

SampleScale GetSampleScale(const JobSpec& job) {
  SampleScale scale;
  const TrainingSpec& training = job.training();
  if (HasLocalSteps(job)) {
    scale.of = job.optimizer().has_sgd() ? SampleScale::Of::kGradient : SampleScale::Of::kRate;
    scale.whole_step = SamplesOfAllPushes(job);
    scale.is_of_all = true;
  } else if (training.balance() == TrainingSpec::SPEED || training.global_batch()) {
    scale.of = SampleScale::Of::kRate;
    scale.whole_step = SamplesOfPush(job);
    scale.is_of_all = training.global_batch();
  }
  return scale;
}

}  // namespace torchps
