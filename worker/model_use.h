#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/stop_latch.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/evaluation.h"
#include "worker/task.h"

// Evaluates a module on samples and computes predictions. Both functions run the module in
// evaluation mode without gradients on `device`, which must hold the parameters. Each layer's mode
// is restored. `precision` should be that of the training. Exceptions and errors of the user's
// module, objective and dataset are returned as a status. `stop` may be null; if it is stopped, the
// functions return CANCELLED before the next batch.

namespace torchps {

// Returns the loss and the objective's metrics, in order, over the whole dataset. `samples` is 0 if
// the dataset is null or empty.
absl::StatusOr<Evaluation> Evaluate(const Task& task, const Dataset* dataset, torch::Device device,
                                    TrainingSpec::Precision precision = TrainingSpec::FLOAT32,
                                    const StopLatch* stop = nullptr);

// Calls `sink` with each batch and the module's first output for it, on the CPU, in sample order.
absl::Status Predict(
    const Task& task, const Dataset& dataset, torch::Device device,
    TrainingSpec::Precision precision,
    const std::function<absl::Status(const Batch& batch, const torch::Tensor& output)>& sink,
    const StopLatch* stop = nullptr);

// Returns the batch's tensors on `device`.
Batch ToDevice(Batch batch, torch::Device device);

}  // namespace torchps
