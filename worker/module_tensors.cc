#include "worker/module_tensors.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

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

// Where a tensor's elements lie, and what may lie between them.
struct Extent {
  explicit Extent(const torch::Tensor& tensor)
      : begin(reinterpret_cast<uintptr_t>(tensor.data_ptr())) {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    end = begin + static_cast<uintptr_t>(last + 1) * sizeof(float);
  }

  uintptr_t begin;
  uintptr_t end;
};

// Each element's place in a vector that begins at `begin` and has so many elements.
torch::Tensor PlacesOf(const torch::Tensor& tensor, uintptr_t begin, int64_t elements) {
  const auto first = static_cast<int64_t>((Extent(tensor).begin - begin) / sizeof(float));
  return torch::arange(elements, torch::kInt64)
      .as_strided(tensor.sizes(), tensor.strides(), first)
      .reshape({-1});
}

// Whether an element of one is an element of the other. Both are dense float32, and not empty.
bool ShareElements(const torch::Tensor& one, const torch::Tensor& other) {
  const Extent a(one);
  const Extent b(other);
  if (one.device() != other.device() || a.end <= b.begin || b.end <= a.begin) return false;
  const bool are_dense = one.is_non_overlapping_and_dense() && other.is_non_overlapping_and_dense();
  if (are_dense || (a.begin - b.begin) % sizeof(float) != 0) return true;
  // Columns of one table, say, which lie between each other.
  const uintptr_t begin = std::min(a.begin, b.begin);
  const auto elements = static_cast<int64_t>((std::max(a.end, b.end) - begin) / sizeof(float));
  const torch::Tensor is_taken = torch::zeros({elements}, torch::kBool);
  is_taken.index_fill_(0, PlacesOf(one, begin, elements), true);
  return is_taken.index_select(0, PlacesOf(other, begin, elements)).any().item<bool>();
}

// Finds what is sent, each tensor once, in the order of registration.
class Collector {
 public:
  absl::Status Add(const std::string& name, const torch::Tensor& tensor, int group, bool averaged) {
    if (!seen_.insert(tensor.unsafeGetTensorImpl()).second) return absl::OkStatus();
    if (absl::Status status = CheckTensor(name, tensor); !status.ok()) return status;
    if (absl::Status status = CheckMemory(name, tensor); !status.ok()) return status;
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
  // Each tensor gets a place of its own in the flat vector, so that it shares none.
  absl::Status CheckMemory(const std::string& name, const torch::Tensor& tensor) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensor.numel() == 0 || tensors[i].numel() == 0) continue;
      if (!ShareElements(tensors[i], tensor)) continue;
      const bool is_whole =
          tensors[i].data_ptr() == tensor.data_ptr() && tensors[i].numel() == tensor.numel();
      return absl::InvalidArgumentError(absl::StrCat(
          "'", segments[i].name, "' and '", name,
          is_whole
              ? "' are two tensors on the same memory; to tie them, register one and the same "
                "tensor under both names"
              : "' share a part of their memory, and parts cannot be tied; register one tensor "
                "that has all of it, and have forward() take its parts"));
    }
    return absl::OkStatus();
  }

  absl::flat_hash_set<const void*> seen_;
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
