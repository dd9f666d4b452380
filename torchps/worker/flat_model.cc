#include "torchps/worker/flat_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/common/check.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/worker/cuda/pinned_memory.h"
#include "torchps/worker/device.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

bool HasGpu(const Placement& placement) {
  return std::any_of(placement.devices().begin(), placement.devices().end(),
                     [](const torch::Device& device) { return device.is_cuda(); });
}

bool IsChannelsLast(const torch::Tensor& tensor) {
  return tensor.suggest_memory_format() != torch::MemoryFormat::Contiguous;
}

bool IsView(const torch::Tensor& tensor, const torch::Tensor& view) {
  return tensor.defined() && tensor.numel() == view.numel() &&
         tensor.data_ptr() == view.data_ptr() && tensor.is_contiguous();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FlatModel>> FlatModel::Create(
    torch::nn::Module& module, Placement placement, const ModuleTensors::GetGroup& group_of,
    Shared shared, bool mirrored) {
  for (const torch::Device device : placement.devices()) {
    if (absl::Status status = CheckDevice(device); !status.ok()) return status;
  }
  if (absl::Status status = placement.Check(module); !status.ok()) return status;
  try {
    torch::NoGradGuard no_grad;
    // Finds tensors before the move, because the move separates two tensors that share memory.
    absl::StatusOr<ModuleTensors> found = FindTensors(module, group_of);
    if (!found.ok()) return found.status();
    placement.Move(module);
    absl::StatusOr<std::shared_ptr<PushSegment>> segment = nullptr;
    if (shared != Shared::kNothing) {
      const bool may_have_outbox = !placement.on_host() && placement.devices().size() == 1;
      const int buffers =
          shared == Shared::kForOutbox && may_have_outbox ? PushSegmentLayout::kMaxBuffers : 1;
      segment = MakeGradientSegment(found->layout, buffers, /*pinned=*/HasGpu(placement));
    }
    return std::unique_ptr<FlatModel>(
        new FlatModel(*std::move(found), std::move(placement), std::move(segment), mirrored));
  } catch (...) {
    return ThrownError(absl::StrCat("laying the module out on ", DeviceNames(placement.devices())));
  }
}

FlatModel::FlatModel(ModuleTensors module, Placement placement,
                     absl::StatusOr<std::shared_ptr<PushSegment>> segment, bool mirrored)
    : layout_(std::move(module.layout)),
      placement_(std::move(placement)),
      not_shared_(segment.status()),
      segment_(segment.ok() ? *std::move(segment) : nullptr) {
  const auto elements = torch::TensorOptions().dtype(torch::kFloat32);
  const auto host = elements.pinned_memory(HasGpu(placement_));
  if (mirrored || placement_.on_host()) {
    host_values_[0] = torch::empty({layout_.size()}, host);
    host_gradients_ = segment_ == nullptr
                          ? HostGradients(host)
                          : torch::from_blob(
                                segment_->buffer(0).data(), {layout_.trained_size()},
                                [segment = segment_](void*) {}, elements);
  }
  if (!placement_.on_host()) {
    for (const StagePart& place : placement_.GetParts(layout_)) parts_.emplace_back(place);
  }
  for (size_t i = 0; i < module.tensors.size(); ++i) {
    const Segment& segment = layout_.segments()[i];
    Member member;
    member.tensor = std::move(module.tensors[i]);
    sent_.insert(member.tensor.unsafeGetTensorImpl());
    if (!segment.averaged) {
      if (channels_last_name_.empty() && IsChannelsLast(member.tensor)) {
        channels_last_name_ = segment.name;
      }
      const auto [part, begin] = Find(segment);
      member.gradient_view = (part == nullptr ? host_gradients_ : part->gradients())
                                 .narrow(0, begin, segment.length)
                                 .view(member.tensor.sizes());
      member.tensor.mutable_grad() = member.gradient_view;
    }
    members_.push_back(std::move(member));
  }
  MakeViews(0);
  for (Member& member : members_) {
    member.value_views[0].copy_(member.tensor);
    member.tensor.set_data(member.value_views[0]);
  }
  TakeChanges();
  if (!host_values_[0].defined()) return;
  for (const DevicePart& part : parts_) part.GiveValues(host_values_[0]);
}

std::pair<const DevicePart*, int64_t> FlatModel::Find(const Segment& segment) const {
  if (on_host()) return {nullptr, segment.offset};
  const DevicePart& part = parts_[placement_.GetPart(segment.name)];
  return {&part, part.GetBegin(segment)};
}

torch::Tensor FlatModel::HostGradients(const torch::TensorOptions& elements) const {
  const int64_t length = placement_.on_host() ? layout_.trained_size() : layout_.size();
  return torch::zeros({length}, elements).narrow(0, 0, layout_.trained_size());
}

void FlatModel::MakeViews(size_t index) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const Segment& segment = layout_.segments()[i];
    const auto [part, begin] = Find(segment);
    members_[i].value_views[index] = (part == nullptr ? host_values_[index] : part->values())
                                         .narrow(0, begin, segment.length)
                                         .view(members_[i].tensor.sizes());
  }
}

absl::Status FlatModel::UseLink(std::unique_ptr<DeviceLink> link, const BlockMap& block_map) {
  TPS_CHECK(parts_.size() == 1, "a link is between the host and one device");
  DeviceCopies::Options options;
  options.link = std::move(link);
  options.block_map = &block_map;
  options.values = parts_.front().values();
  options.gradients = parts_.front().gradients();
  options.pinned = host_values_[0].is_pinned();
  try {
    copies_ = std::make_unique<DeviceCopies>(std::move(options));
    return absl::OkStatus();
  } catch (...) {
    return ThrownError(absl::StrCat("allocating a second value vector on ", device().str()));
  }
}

GradientOutbox* FlatModel::MakeOutbox() {
  if (copies_ == nullptr) return nullptr;
  if (copies_->outbox() != nullptr) return copies_->outbox();
  if (segment_ != nullptr) {
    if (segment_->buffers() < PushSegmentLayout::kMaxBuffers) return nullptr;
    return copies_->MakeOutbox(std::move(look_), {segment_->buffer(0), segment_->buffer(1)});
  }
  // Releases the host gradients first, so that torch's cache of pinned memory gives that memory to
  // the outbox.
  const auto elements = host_gradients_.options().pinned_memory(host_gradients_.is_pinned());
  host_gradients_.reset();
  GradientOutbox* const outbox = copies_->MakeOutbox(std::move(look_));
  if (outbox == nullptr) host_gradients_ = HostGradients(elements);
  return outbox;
}

absl::Status FlatModel::UseEncoder(std::unique_ptr<BlockEncoder> encoder, bool looks) {
  TPS_CHECK(copies_ != nullptr, "encoded gradients are copied by a link");
  if (copies_->MakeEncodedOutbox(std::move(encoder), looks) == nullptr) {
    return absl::ResourceExhaustedError("cannot pin memory for the encoded gradients");
  }
  host_gradients_.reset();
  return absl::OkStatus();
}

std::vector<torch::Tensor> FlatModel::parameters() const {
  std::vector<torch::Tensor> parameters;
  for (const Member& member : members_) {
    if (member.gradient_view.defined()) parameters.push_back(member.tensor);
  }
  return parameters;
}

torch::Tensor FlatModel::device_values() const {
  TPS_CHECK(has_one_vector(), "the values are on several devices");
  return (on_host() ? host_values_[current_] : parts_.front().values())
      .narrow(0, 0, layout_.trained_size());
}

const torch::Tensor& FlatModel::device_gradients() const {
  TPS_CHECK(has_one_vector(), "the gradients are on several devices");
  return on_host() ? host_gradients_ : parts_.front().gradients();
}

torch::Tensor FlatModel::device_averaged() const {
  TPS_CHECK(has_one_vector(), "the averaged elements are on several devices");
  return (on_host() ? host_values_[current_] : parts_.front().values())
      .narrow(0, layout_.trained_size(), layout_.averaged_size());
}

absl::Span<float> FlatModel::values() {
  return absl::MakeSpan(host_values_[current_].data_ptr<float>(), layout_.size());
}

absl::Span<float> FlatModel::next_values() {
  const size_t next = 1 - current_;
  if (!host_values_[next].defined()) {
    torch::NoGradGuard no_grad;
    // Copying touches the pages, so that the first pull need not fault them in.
    host_values_[next] = host_values_[current_].clone();
    if (on_host()) {
      MakeViews(next);
    } else if (host_values_[current_].is_pinned()) {
      host_values_[next] = host_values_[next].pin_memory();
    }
  }
  return absl::MakeSpan(host_values_[next].data_ptr<float>(), layout_.size());
}

absl::Status FlatModel::UseNextValues() {
  // If the program replaced a value's tensor, switching vectors would silently undo the
  // replacement.
  if (absl::Status status = CheckValues(); !status.ok()) return status;
  current_ = 1 - current_;
  if (!on_host()) return ToDevice();
  torch::NoGradGuard no_grad;
  for (Member& member : members_) member.tensor.set_data(member.value_views[current_]);
  return absl::OkStatus();
}

absl::StatusOr<std::function<void(BlockId)>> FlatModel::ExpectBlocks(absl::Span<float> values) {
  if (copies_ == nullptr) return nullptr;
  ValueUploader& inbox = copies_->inbox();
  if (absl::Status status = inbox.Begin(values); !status.ok()) return status;
  return [&inbox](BlockId block) { inbox.Landed(block); };
}

absl::Span<float> FlatModel::gradients() {
  if (copies_ != nullptr && copies_->outbox() != nullptr) return copies_->outbox()->gradients();
  if (encoded_outbox() != nullptr) return {};
  return absl::MakeSpan(host_gradients_.data_ptr<float>(), layout_.trained_size());
}

std::function<bool(BlockId)> FlatModel::is_finite() {
  if (copies_ == nullptr || copies_->outbox() == nullptr) return nullptr;
  const absl::Span<const float> verdicts = copies_->outbox()->verdicts();
  if (verdicts.empty()) return nullptr;
  return [verdicts](BlockId block) { return FiniteCheck::IsFinite(verdicts, block); };
}

absl::Span<const float> FlatModel::averaged() {
  if (copies_ != nullptr && copies_->outbox() != nullptr) return copies_->outbox()->averaged();
  if (encoded_outbox() != nullptr) return encoded_outbox()->averaged();
  return values().subspan(layout_.trained_size());
}

// Without a link, the copy functions of DevicePart return when the copy is complete.

absl::Status FlatModel::ToDevice() {
  if (on_host()) return absl::OkStatus();
  if (copies_ != nullptr && copies_->inbox().host() == values().data()) {
    return copies_->inbox().TakeOver();
  }
  try {
    for (const DevicePart& part : parts_) part.TakeValues(host_values_[current_]);
    return absl::OkStatus();
  } catch (...) {
    return ThrownError(absl::StrCat("moving values to ", DeviceNames(devices())));
  }
}

absl::Status FlatModel::ToHost() {
  if (on_host()) return absl::OkStatus();
  TPS_CHECK(
      copies_ == nullptr || (copies_->outbox() == nullptr && copies_->encoded_outbox() == nullptr),
      "the outbox copies the gradients");
  try {
    for (const DevicePart& part : parts_) {
      part.GiveGradients(host_gradients_);
      part.GiveAveraged(host_values_[current_]);
    }
    return absl::OkStatus();
  } catch (...) {
    return ThrownError(absl::StrCat("moving gradients from ", DeviceNames(devices())));
  }
}

void FlatModel::ZeroGradients() {
  torch::NoGradGuard no_grad;
  if (on_host()) host_gradients_.zero_();
  for (const DevicePart& part : parts_) part.gradients().zero_();
  for (Member& member : members_) {
    if (!member.gradient_view.defined() || member.tensor.grad().defined()) continue;
    member.tensor.mutable_grad() = member.gradient_view;
  }
}

absl::Status FlatModel::CheckValues() const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (!IsView(member.tensor, member.value_views[view_index()])) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", layout_.segments()[i].name, "' is no longer in the flat value vector; ",
                       "do not move the module or replace its tensors after the job has started"));
    }
  }
  return absl::OkStatus();
}

absl::Status FlatModel::CheckModule(const torch::nn::Module& module) const {
  if (absl::Status status = CheckValues(); !status.ok()) return status;
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.defined() || !parameter.requires_grad() ||
        sent_.contains(parameter.unsafeGetTensorImpl())) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter '", item.key(),
        "' was registered or unfrozen after the job had started, so it is not trained; ",
        "register it in the module's constructor, and freeze it there with requires_grad; ",
        "to unfreeze it later, start another job from this job's model ", "(model.init_from)"));
  }
  for (const auto& item : module.named_buffers()) {
    const torch::Tensor& buffer = item.value();
    if (!buffer.defined() || buffer.scalar_type() != torch::kFloat32 ||
        sent_.contains(buffer.unsafeGetTensorImpl())) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "float buffer '", item.key(), "' was registered after the job had started, so it is ",
        "not averaged over workers; register it in the module's constructor, or keep it in a ",
        "member that is not registered"));
  }
  return absl::OkStatus();
}

absl::Status FlatModel::CheckUnchanged() const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (!member.gradient_view.defined() || member.tensor._version() == member.version) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the program changes the parameter '", layout_.segments()[i].name,
        "' in place, and the next pull from the servers would undo the change; let only the "
        "servers change parameters (for an Embedding with max_norm or a clamped weight, compute "
        "with a copy in forward())"));
  }
  return absl::OkStatus();
}

void FlatModel::TakeChanges() {
  for (Member& member : members_) member.version = member.tensor._version();
}

absl::Status FlatModel::CheckViews() const {
  if (absl::Status status = CheckValues(); !status.ok()) return status;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (member.gradient_view.defined() && !IsView(member.tensor.grad(), member.gradient_view)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the gradient of '", layout_.segments()[i].name, "' is no longer in the flat gradient ",
          "vector; it was replaced during the step"));
    }
  }
  return absl::OkStatus();
}

}  // namespace torchps
