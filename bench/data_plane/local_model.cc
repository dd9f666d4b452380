#include "bench/data_plane/local_model.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "bench/data_plane/numbers.h"
#include "google/protobuf/text_format.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

constexpr double kLearningRate = 1e-6;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalModel>> LocalModel::Create(const Scenario& scenario) {
  JobSpec job;
  if (!google::protobuf::TextFormat::ParseFromString(scenario.optimizer, job.mutable_optimizer())) {
    return absl::InvalidArgumentError("--optimizer is not an OptimizerSpec in text format");
  }
  job.mutable_model()->set_name("bench");
  job.mutable_optimizer()->set_learning_rate(kLearningRate);
  const absl::StatusOr<JobSpec> normalised = NormalizeJobSpec(std::move(job));
  if (!normalised.ok()) return normalised.status();
  absl::StatusOr<std::unique_ptr<Optimizer>> optimizer = MakeOptimizer(normalised->optimizer());
  if (!optimizer.ok()) return optimizer.status();
  const auto elements = static_cast<int64_t>(scenario.bytes / sizeof(float));
  return absl::WrapUnique(new LocalModel(elements, *std::move(optimizer)));
}

LocalModel::LocalModel(int64_t elements, std::unique_ptr<Optimizer> optimizer)
    : optimizer_(std::move(optimizer)),
      values_(SomeFloats(elements)),
      slots_(optimizer_->slots(), std::vector<float>(elements)),
      block_slots_(slots_.size()) {
  parameters_.learning_rate = kLearningRate;
  for (size_t i = 0; i < slots_.size(); ++i) block_slots_[i] = slots_[i].data();
  optimizer_->InitializeSlots(block_slots_, elements);
}

void LocalModel::ApplyBlock(int64_t begin, const float* gradient) {
  for (size_t i = 0; i < slots_.size(); ++i) block_slots_[i] = slots_[i].data() + begin;
  optimizer_->Apply(parameters_, values_.data() + begin, block_slots_, gradient,
                    BlockElements(begin));
}

int64_t LocalModel::BlockElements(int64_t begin) const {
  return std::min(kBlockElements, elements() - begin);
}

}  // namespace torchps
