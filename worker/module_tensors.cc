#include "worker/module_tensors.h"

#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "worker/stages/stages.h"

namespace torchps {
namespace {

absl::Status CheckTensor(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.layout() != torch::kStrided) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is sparse; only dense tensors can be trained here"));
  }
  if (tensor.scalar_type() != torch::kFloat32) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' holds elements of type ",
                                                   torch::toString(tensor.scalar_type()),
                                                   "; expected Float (32 bits)"));
  }
  return absl::OkStatus();
}

// Finds what is sent, each tensor once, in the order of registration.
class Collector {
 public:
  absl::Status Add(const std::string& name, const torch::Tensor& tensor, int group, bool averaged) {
    if (!seen_.insert(tensor.unsafeGetTensorImpl()).second) return absl::OkStatus();
    if (absl::Status status = CheckTensor(name, tensor); !status.ok()) return status;
    if (tensor.numel() > 0) {
      const auto [other, is_new] = by_memory_.try_emplace(tensor.data_ptr(), name);
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", other->second, "' and '", name, "' are two tensors on the same memory; to tie ",
            "them, register one and the same tensor under both names"));
      }
    }
    Segment segment;
    segment.name = name;
    segment.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
    segment.group = group;
    segment.averaged = averaged;
    segments.push_back(std::move(segment));
    tensors.push_back(tensor);
    return absl::OkStatus();
  }

  std::vector<Segment> segments;
  std::vector<torch::Tensor> tensors;

 private:
  absl::flat_hash_set<const void*> seen_;
  absl::flat_hash_map<const void*, std::string> by_memory_;
};

absl::Status Collect(const torch::nn::Module& module, const ModuleTensors::GroupOf& group_of,
                     Collector& found) {
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.defined() || !parameter.requires_grad()) continue;
    absl::Status status =
        found.Add(item.key(), parameter, group_of(item.key()), /*averaged=*/false);
    if (!status.ok()) return status;
  }
  for (const auto& item : module.named_buffers()) {
    const torch::Tensor& buffer = item.value();
    if (!buffer.defined() || !buffer.is_floating_point()) continue;
    absl::Status status = found.Add(item.key(), buffer, /*group=*/-1, /*averaged=*/true);
    if (!status.ok()) return status;
    if (!buffer.isfinite().all().item<bool>()) {
      return absl::InvalidArgumentError(
          absl::StrCat("buffer '", item.key(), "' is not finite, and float buffers are averaged ",
                       "over workers; register a mask as a boolean buffer"));
    }
  }
  return absl::OkStatus();
}

// A model in stages is one layout, whether one process holds it or one for each stage
// (client/members/stage_layouts.h).
void MarkStages(const torch::nn::Module& module, std::vector<Segment>* segments) {
  if (dynamic_cast<const StagesImpl*>(&module) == nullptr) return;
  std::set<std::pair<std::string, bool>> begun = {{"0", false}, {"0", true}};
  for (Segment& segment : *segments) {
    const std::string stage = segment.name.substr(0, segment.name.find('.'));
    segment.starts_block = begun.emplace(stage, segment.averaged).second;
  }
}

}  // namespace

absl::StatusOr<ModuleTensors> FindTensors(const torch::nn::Module& module,
                                          const ModuleTensors::GroupOf& group_of) {
  Collector found;
  if (absl::Status status = Collect(module, group_of, found); !status.ok()) return status;
  MarkStages(module, &found.segments);
  absl::StatusOr<ModelLayout> layout = ModelLayout::Create(std::move(found.segments));
  if (!layout.ok()) return layout.status();
  // Trained segments come first in a layout, and are found first, so the order is the same.
  return ModuleTensors{*std::move(layout), std::move(found.tensors)};
}

absl::StatusOr<ModelLayout> LayoutOfModule(const torch::nn::Module& module,
                                           const ModuleTensors::GroupOf& group_of) {
  absl::StatusOr<ModuleTensors> found = FindTensors(module, group_of);
  if (!found.ok()) return found.status();
  return std::move(found->layout);
}

}  // namespace torchps
