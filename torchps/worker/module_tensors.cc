#include "torchps/worker/module_tensors.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/state_sources.h"

namespace torchps {
namespace {

absl::Status CheckTensor(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.layout() != torch::kStrided) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is sparse; only dense tensors can be trained here"));
  }
  if (tensor.scalar_type() == torch::kFloat32) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' holds elements of type ", torch::toString(tensor.scalar_type()),
                   "; expected Float (32 bits): ",
                   tensor.is_complex() ? "register its torch::view_as_real(), and use "
                                         "torch::view_as_complex() of it in forward()"
                                       : "convert the module with module->to(torch::kFloat32)"));
}

// The memory range from a tensor's first element to the last one.
struct Extent {
  // REQUIRES: the tensor is dense, float32 and not empty.
  explicit Extent(const torch::Tensor& tensor)
      : begin(reinterpret_cast<uintptr_t>(tensor.data_ptr())) {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    end = begin + static_cast<uintptr_t>(last + 1) * sizeof(float);
  }

  uintptr_t begin;
  uintptr_t end;
};

// `vector` stands for the memory from address `begin` on, one element for each float. Returns the
// view of `vector` at the addresses of the tensor's elements. Uses one index of each expanded
// dimension, because all its indices share their memory.
torch::Tensor PlacesIn(const torch::Tensor& vector, uintptr_t begin, const torch::Tensor& tensor) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (tensor.stride(static_cast<int64_t>(i)) == 0) sizes[i] = 1;
  }
  const auto first = static_cast<int64_t>((Extent(tensor).begin - begin) / sizeof(float));
  return vector.as_strided(sizes, tensor.strides(), first);
}

// Returns true if two tensors, with extents `a` and `b`, share an element.
bool ShareElements(const torch::Tensor& one, const Extent& a, const torch::Tensor& other,
                   const Extent& b) {
  if (a.end <= b.begin || b.end <= a.begin || one.device() != other.device()) return false;
  const bool are_dense = one.is_non_overlapping_and_dense() && other.is_non_overlapping_and_dense();
  if (are_dense || (a.begin - b.begin) % sizeof(float) != 0) return true;
  // The tensors may interleave, for example as columns of one table. Marks the elements of one, and
  // looks for a marked element of the other.
  const uintptr_t begin = std::min(a.begin, b.begin);
  const auto elements = static_cast<int64_t>((std::max(a.end, b.end) - begin) / sizeof(float));
  const torch::Tensor is_taken = torch::zeros({elements}, torch::kBool);
  PlacesIn(is_taken, begin, one).fill_(true);
  return PlacesIn(is_taken, begin, other).any().item<bool>();
}

// Collects the tensors to exchange, each once, in registration order.
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
  // Rejects tensors that share memory, because the flat vector stores each tensor separately.
  absl::Status CheckMemory(const std::string& name, const torch::Tensor& tensor) {
    if (tensor.numel() == 0) return absl::OkStatus();
    const Extent extent(tensor);
    for (const Placed& other : placed_) {
      if (!ShareElements(other.tensor, other.extent, tensor, extent)) continue;
      const bool is_whole =
          other.extent.begin == extent.begin && other.tensor.numel() == tensor.numel();
      return absl::InvalidArgumentError(absl::StrCat(
          "'", other.name, "' and '", name,
          is_whole
              ? "' are two tensors in the same memory; to tie them, register the same "
                "tensor under both names"
              : "' share a part of their memory, and parts cannot be tied; register one tensor "
                "that covers both, and slice it in forward()"));
    }
    placed_.push_back({name, tensor, extent});
    return absl::OkStatus();
  }

  // A nonempty tensor and the memory range to compare later tensors with.
  struct Placed {
    std::string name;
    torch::Tensor tensor;
    Extent extent;
  };

  std::vector<Placed> placed_;
  absl::flat_hash_set<const void*> seen_;
};

absl::Status Collect(const torch::nn::Module& module, const ModuleTensors::GetGroup& group_of,
                     Collector& found) {
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.defined()) continue;
    absl::Status status =
        parameter.requires_grad()
            ? found.Add(item.key(), parameter, group_of(item.key()), /*averaged=*/false)
            : GetFileDtype(item.key(), parameter).status();
    if (!status.ok()) return status;
  }
  for (const auto& item : module.named_buffers()) {
    const torch::Tensor& buffer = item.value();
    if (!buffer.defined()) continue;
    const bool averaged = buffer.scalar_type() == torch::kFloat32;
    absl::Status status = averaged ? found.Add(item.key(), buffer, /*group=*/-1, averaged)
                                   : GetFileDtype(item.key(), buffer).status();
    if (!status.ok()) return status;
    if (averaged && !buffer.isfinite().all().item<bool>()) {
      return absl::InvalidArgumentError(
          absl::StrCat("buffer '", item.key(), "' is not finite, and float buffers are averaged ",
                       "over workers; register a mask as a boolean buffer"));
    }
  }
  return absl::OkStatus();
}

// Makes each stage start a new block. Then one process with the whole model and several processes
// with a stage each use the same blocks (torchps/client/stage_layouts.h).
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
                                          const ModuleTensors::GetGroup& group_of) {
  Collector found;
  if (absl::Status status = Collect(module, group_of, found); !status.ok()) return status;
  MarkStages(module, &found.segments);
  absl::StatusOr<ModelLayout> layout = ModelLayout::Create(std::move(found.segments));
  if (!layout.ok()) return layout.status();
  // The layout orders trained segments first, which is also the order of collection.
  return ModuleTensors{*std::move(layout), std::move(found.tensors)};
}

absl::StatusOr<ModelLayout> LayoutOfModule(const torch::nn::Module& module,
                                           const ModuleTensors::GetGroup& group_of) {
  absl::StatusOr<ModuleTensors> found = FindTensors(module, group_of);
  if (!found.ok()) return found.status();
  return std::move(found->layout);
}

}  // namespace torchps
