#include "torchps/worker/stages/stages.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/check.h"

namespace torchps {

torch::Device ModelStage::DeviceOr(torch::Device otherwise) const {
  for (const bool buffers : {false, true}) {
    for (const torch::Tensor& tensor : buffers ? module_->buffers() : module_->parameters()) {
      if (tensor.defined()) return tensor.device();
    }
  }
  return otherwise;
}

torch::Tensor ModelStage::Forward(const torch::Tensor& input) const {
  torch::Tensor output = forward_(input);
  TORCH_CHECK(output.defined(), "the stage's forward() returned no tensor");
  return output;
}

StagesImpl::StagesImpl(std::vector<ModelStage> stages)
    : torch::nn::Module("Stages"), stages_(std::move(stages)) {
  TORCH_CHECK(!stages_.empty(), "torchps::Stages needs at least one stage");
  for (size_t i = 0; i < stages_.size(); ++i) {
    TORCH_CHECK(stages_[i].module() != nullptr, "stage ", i, " of torchps::Stages is null");
    register_module(std::to_string(i), stages_[i].module());
  }
}

torch::Tensor StagesImpl::forward(torch::Tensor input) {
  const torch::Device device = input.device();
  for (const ModelStage& stage : stages_) {
    input = stage.Forward(input.to(stage.DeviceOr(input.device())));
  }
  return input.to(device);
}

namespace {

// Cuts layers into parts, from the first layer on. Each part takes layers up to the total weight
// `most`, but leaves one layer for each later part. Returns the index of each part's first layer.
// If `most` is too small, the result has more than `parts` parts.
std::vector<size_t> Fill(const std::vector<int64_t>& weights, size_t parts, int64_t most) {
  std::vector<size_t> firsts = {0};
  int64_t weight = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool are_needed = weights.size() - i + firsts.size() <= parts;
    if (i > firsts.back() && (are_needed || weight + weights[i] > most)) {
      firsts.push_back(i);
      weight = 0;
    }
    weight += weights[i];
  }
  return firsts;
}

}  // namespace

std::vector<size_t> EvenCut(const std::vector<int64_t>& weights, size_t parts) {
  TPS_CHECK(parts >= 1 && parts <= weights.size(), "each part has a layer");
  int64_t least = *std::max_element(weights.begin(), weights.end());
  int64_t most = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  while (least < most) {
    const int64_t middle = least + (most - least) / 2;
    if (Fill(weights, parts, middle).size() <= parts) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return Fill(weights, parts, most);
}

Placement::Placement(std::vector<torch::Device> devices) : devices_(std::move(devices)) {
  TPS_CHECK(!devices_.empty(), "a module lies somewhere");
}

Placement Placement::ApartFromHost() const {
  Placement apart = *this;
  apart.apart_ = true;
  return apart;
}

bool Placement::on_host() const {
  return !apart_ && std::all_of(devices_.begin(), devices_.end(),
                                [](torch::Device device) { return device.is_cpu(); });
}

absl::Status Placement::Check(const torch::nn::Module& module) const {
  if (!has_stages()) return absl::OkStatus();
  const auto* const stages = dynamic_cast<const StagesImpl*>(&module);
  if (stages == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", devices_.size(), " devices for a module that is not cut into ",
                     "stages; name one device, or make the module a torchps::Stages"));
  }
  if (stages->stages().size() != devices_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", devices_.size(), " devices for a module of ",
                     stages->stages().size(), " stages; name one device, or one for each stage"));
  }
  if (module.children().size() != devices_.size() ||
      !module.parameters(/*recurse=*/false).empty() || !module.buffers(/*recurse=*/false).empty()) {
    return absl::InvalidArgumentError(
        "a torchps::Stages on several devices has a submodule or a tensor outside its stages; "
        "register it with a stage");
  }
  absl::flat_hash_map<const void*, std::string> names;
  const auto check = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined()) return absl::OkStatus();
    const std::string& first = names.try_emplace(tensor.unsafeGetTensorImpl(), name).first->second;
    const torch::Device there = devices_[GetPart(first)];
    const torch::Device here = devices_[GetPart(name)];
    if (there == here) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "'", first, "' and '", name, "' are the same tensor, but their stages are on ", there.str(),
        " and ", here.str(), "; put both stages on one device, or cut the module elsewhere"));
  };
  for (const auto& item : module.named_parameters()) {
    if (absl::Status status = check(item.key(), item.value()); !status.ok()) return status;
  }
  for (const auto& item : module.named_buffers()) {
    if (absl::Status status = check(item.key(), item.value()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void Placement::Move(torch::nn::Module& module) const {
  if (!has_stages()) return module.to(devices_.front());
  const std::vector<std::shared_ptr<torch::nn::Module>> stages = module.children();
  for (size_t stage = 0; stage < stages.size(); ++stage) stages[stage]->to(devices_[stage]);
}

std::vector<StagePart> Placement::GetParts(const ModelLayout& layout) const {
  std::vector<StagePart> parts;
  for (const torch::Device device : devices_) parts.push_back({device, {}, {}});
  for (const Segment& segment : layout.segments()) {
    StagePart& part = parts[GetPart(segment.name)];
    ElementRun& run = segment.averaged ? part.averaged : part.trained;
    if (segment.length == 0) continue;
    if (run.end == 0) run = {segment.offset, segment.offset};
    // The stage's tensors were registered consecutively.
    TPS_CHECK(run.end == segment.offset, "a stage's elements are one run");
    run.end += segment.length;
  }
  return parts;
}

size_t Placement::GetPart(const std::string& name) const {
  size_t stage = 0;
  if (has_stages()) {
    // torchps::Stages names the submodules by number.
    const bool read = absl::SimpleAtoi(absl::string_view(name).substr(0, name.find('.')), &stage);
    TPS_CHECK(read && stage < devices_.size(), "a tensor belongs to a stage");
  }
  return stage;
}

}  // namespace torchps
