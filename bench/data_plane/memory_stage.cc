// memcpy and in_process_apply: what this machine's memory gives one thread.

#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/data_plane/numbers.h"
#include "bench/data_plane/operation.h"
#include "google/protobuf/text_format.h"
#include "proto/job_spec.h"
#include "server/optimizer/optimizer.h"

namespace torchps {
namespace {

// The pieces in which a server applies: a block.
constexpr int64_t kBlockElements = (1 << 20) / sizeof(float);

using Floats = std::vector<float>;

class Memcpy final : public Operation {
 public:
  explicit Memcpy(const Floats* from) : from_(from), to_(*from) {}

  absl::Status Run() override {
    std::memcpy(to_.data(), from_->data(), to_.size() * sizeof(float));
    asm volatile("" : : "r"(to_.data()) : "memory");  // somebody might look
    return absl::OkStatus();
  }

 private:
  const Floats* const from_;
  Floats to_;
};

// The same optimizer on the same blocks as in a server, without a lock, a ledger or a wire.
class InProcessApply final : public Operation {
 public:
  InProcessApply(const Floats* gradient, std::unique_ptr<Optimizer> optimizer)
      : gradient_(gradient),
        optimizer_(std::move(optimizer)),
        values_(*gradient),
        slots_(optimizer_->slots(), Floats(gradient->size())),
        block_slots_(slots_.size()) {
    parameters_.learning_rate = 1e-6;
    for (Floats& slot : slots_) {
      float* const data = slot.data();
      optimizer_->InitializeSlots({&data, 1}, slot.size());
    }
  }

  absl::Status Run() override {
    const auto elements = static_cast<int64_t>(values_.size());
    for (int64_t begin = 0; begin < elements; begin += kBlockElements) {
      for (size_t i = 0; i < slots_.size(); ++i) block_slots_[i] = slots_[i].data() + begin;
      optimizer_->Apply(parameters_, values_.data() + begin, block_slots_,
                        gradient_->data() + begin, std::min(kBlockElements, elements - begin));
    }
    ++parameters_.step;
    return absl::OkStatus();
  }

 private:
  const Floats* const gradient_;
  const std::unique_ptr<Optimizer> optimizer_;
  Floats values_;
  std::vector<Floats> slots_;
  std::vector<float*> block_slots_;
  ApplyParameters parameters_;
};

class MemoryStage final : public Stage {
 public:
  MemoryStage(const Scenario& scenario, OptimizerSpec optimizer)
      : optimizer_(std::move(optimizer)), floats_(SomeFloats(scenario.bytes / sizeof(float))) {}

  absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view name) override {
    if (name == "memcpy") return std::make_unique<Memcpy>(&floats_);
    absl::StatusOr<std::unique_ptr<Optimizer>> optimizer = MakeOptimizer(optimizer_);
    if (!optimizer.ok()) return optimizer.status();
    return std::make_unique<InProcessApply>(&floats_, *std::move(optimizer));
  }

 private:
  const OptimizerSpec optimizer_;
  const Floats floats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeMemoryStage(const Scenario& scenario) {
  JobSpec job;
  if (!google::protobuf::TextFormat::ParseFromString(scenario.optimizer, job.mutable_optimizer())) {
    return absl::InvalidArgumentError("--optimizer is no OptimizerSpec in text format");
  }
  job.mutable_model()->set_name("bench");
  job.mutable_optimizer()->set_learning_rate(1e-6);
  const absl::StatusOr<JobSpec> normalised = NormalizeJobSpec(std::move(job));
  if (!normalised.ok()) return normalised.status();
  return std::make_unique<MemoryStage>(scenario, normalised->optimizer());
}

}  // namespace torchps
