#include "worker/stages/pipeline_schedule.h"

#include <algorithm>

#include "common/check.h"

namespace torchps {

std::vector<PipelineStep> OneForwardOneBackward(int stage, int stages, int micro_batches) {
  TPS_CHECK(stage >= 0 && stage < stages, "a stage is one of the stages");
  TPS_CHECK(micro_batches >= 1, "a batch has a part");
  std::vector<PipelineStep> steps;
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  int forward = 0;
  while (forward < ahead) steps.push_back({true, forward++});
  for (int backward = 0; backward < micro_batches; ++backward) {
    if (forward < micro_batches) steps.push_back({true, forward++});
    steps.push_back({false, backward});
  }
  return steps;
}

}  // namespace torchps
