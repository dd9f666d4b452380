#include "torchps/worker/slot/device_work.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torchps/job/local_steps.h"
#include "torchps/worker/device_factory.h"
#include "torchps/worker/finish_gradient.h"

namespace torchps {

void DeviceWork::Link() {
  if (model_.on_host() || !model_.has_one_vector()) return;
  absl::StatusOr<std::unique_ptr<DeviceLink>> link =
      options_.device_factory->MakeLink(model_.device());
  const absl::Status linked =
      link.ok() ? model_.UseLink(*std::move(link), block_map_) : link.status();
  if (linked.ok()) return;
  options_.log(absl::StrCat("gradients and values are copied while ", model_.device().str(),
                            " waits, not while it computes: ", linked.message()));
}

void DeviceWork::Scan() {
  if (model_.on_host() || !model_.has_one_vector()) return;
  if (!NeedsWholeGradient(job_.training()) && !HasLocalSteps(job_)) return;
  absl::StatusOr<std::unique_ptr<DeviceScan>> scan =
      options_.device_factory->MakeScan(model_.device_gradients());
  if (scan.ok()) return model_.UseScan(*std::move(scan));
  options_.log(absl::StrCat("gradient norms are not computed by torchps's GPU kernels: ",
                            scan.status().message()));
}

void DeviceWork::Look() {
  // A link exists only if one device holds the whole model. Local steps end on the host.
  if (model_.link() == nullptr || HasLocalSteps(job_)) return;
  if (NeedsWholeGradient(job_.training())) return;
  absl::StatusOr<std::unique_ptr<FiniteCheck>> look =
      options_.device_factory->MakeFiniteCheck(model_.device_gradients(), block_map_);
  if (look.ok()) return model_.UseFiniteCheck(*std::move(look));
  options_.log(absl::StrCat("the host checks gradients for values that are not finite, not ",
                            model_.device().str(), ": ", look.status().message()));
}

EncodedOutbox* DeviceWork::Encode() {
  // A link exists only if one device holds the whole model. Local steps end on the host.
  if (model_.link() == nullptr || HasLocalSteps(job_)) return nullptr;
  const bool whole = NeedsWholeGradient(job_.training());
  // Scan() logged the reason.
  if (whole && model_.scan() == nullptr) return nullptr;
  absl::StatusOr<std::unique_ptr<BlockEncoder>> encoder = options_.device_factory->MakeEncoder(
      model_.device_gradients(), block_map_, job_.wire().push());
  const absl::Status used =
      encoder.ok() ? model_.UseEncoder(*std::move(encoder), /*looks=*/!whole) : encoder.status();
  if (used.ok()) {
    // Logged because neither the report nor the training result shows where gradients are encoded.
    options_.log(absl::StrCat("gradients are encoded as ",
                              EncodingSpec::Kind_Name(job_.wire().push().kind()), " on ",
                              model_.device().str()));
    return model_.encoded_outbox();
  }
  options_.log(absl::StrCat("gradients are encoded on the host, not by ", model_.device().str(),
                            ": ", used.message()));
  return nullptr;
}

}  // namespace torchps
