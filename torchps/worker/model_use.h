#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/preprocessing.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/task.h"

// Loads a trained module, evaluates it on samples and computes predictions. Evaluate() and
// Predict() run the module in evaluation mode without gradients on `device`, which must hold the
// parameters, and then restore each layer's mode. `precision` should be that of the training.
// Exceptions and errors of the user's module, objective and dataset are returned as a status.
// `stop` may be null. After a stop, Evaluate() and Predict() return CANCELLED before the next
// batch.

namespace torchps {

// Reads a trained model: loads the state into `module` like LoadState, and returns the
// preprocessing for the inputs (torchps/data/preprocessing.h). `path` is a model file or a run
// folder. Returns errors of LoadState and Preprocessing::FromMetadata.
absl::StatusOr<Preprocessing> LoadModel(torch::nn::Module& module, const std::string& path);

// The same for a TORCH_MODULE holder.
template <typename Net>
absl::StatusOr<Preprocessing> LoadModel(torch::nn::ModuleHolder<Net>& module,
                                        const std::string& path) {
  return LoadModel(*module, path);
}

// Returns the model file for `path`: the path itself, or model.safetensors if it is a folder.
std::string MakeModelFile(const std::string& path);

// Returns the metadata of a safetensors file, or an empty map for another format. Returns errors of
// SafetensorsReader and of opening the file.
absl::StatusOr<Preprocessing::Metadata> GetMetadata(const std::string& path);

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
