#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/stop_latch.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/evaluation.h"
#include "worker/task.h"

// What a module can do that learns nothing: be measured on samples, and answer for them. Both run
// it in evaluation mode without gradients, where its parameters are, `device`, and leave each of
// its layers in the mode that it was in. `precision` as it was trained in. What the user's module,
// objective or dataset throw or return comes back as a status. `stop` may be null; CANCELLED: it
// has stopped, which is seen between two batches.

namespace torchps {

// Loss and the objective's metrics, in its order, over the whole dataset; no samples where there is
// none.
absl::StatusOr<Evaluation> Evaluate(const Task& task, const Dataset* dataset, torch::Device device,
                                    TrainingSpec::Precision precision = TrainingSpec::FLOAT32,
                                    const StopLatch* stop = nullptr);

// Calls `sink` with the first outputs of all samples, batch by batch in their order, on the CPU.
absl::Status Predict(
    const Task& task, const Dataset& dataset, torch::Device device,
    TrainingSpec::Precision precision,
    const std::function<absl::Status(const Batch& batch, const torch::Tensor& output)>& sink,
    const StopLatch* stop = nullptr);

// The batch's tensors on `device`.
Batch ToDevice(Batch batch, torch::Device device);

}  // namespace torchps
