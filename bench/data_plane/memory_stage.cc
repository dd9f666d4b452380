// memcpy and in_process_apply: the memory speed of this machine for one thread.

#include <cstring>
#include <utility>

#include "bench/data_plane/local_model.h"
#include "bench/data_plane/numbers.h"
#include "bench/data_plane/operation.h"

namespace torchps {
namespace {

using Floats = std::vector<float>;

class Memcpy final : public Operation {
 public:
  explicit Memcpy(const Floats* from) : from_(from), to_(*from) {}

  absl::Status Run() override {
    std::memcpy(to_.data(), from_->data(), to_.size() * sizeof(float));
    asm volatile("" : : "r"(to_.data()) : "memory");  // prevents optimization
    return absl::OkStatus();
  }

 private:
  const Floats* const from_;
  Floats to_;
};

class InProcessApply final : public Operation {
 public:
  InProcessApply(const Floats* gradient, std::unique_ptr<LocalModel> model)
      : gradient_(gradient), model_(std::move(model)) {}

  absl::Status Run() override {
    for (int64_t at = 0; at < model_->elements(); at += LocalModel::kBlockElements) {
      model_->ApplyBlock(at, gradient_->data() + at);
    }
    model_->EndStep();
    return absl::OkStatus();
  }

 private:
  const Floats* const gradient_;
  const std::unique_ptr<LocalModel> model_;
};

class MemoryStage final : public Stage {
 public:
  explicit MemoryStage(const Scenario& scenario)
      : scenario_(scenario), floats_(SomeFloats(scenario.bytes / sizeof(float))) {}

  absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view name) override {
    if (name == "memcpy") return std::make_unique<Memcpy>(&floats_);
    absl::StatusOr<std::unique_ptr<LocalModel>> model = LocalModel::Create(scenario_);
    if (!model.ok()) return model.status();
    return std::make_unique<InProcessApply>(&floats_, *std::move(model));
  }

 private:
  const Scenario scenario_;
  const Floats floats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeMemoryStage(const Scenario& scenario) {
  return std::make_unique<MemoryStage>(scenario);
}

}  // namespace torchps
