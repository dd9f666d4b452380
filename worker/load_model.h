#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "absl/status/statusor.h"
#include "data/preprocessing.h"

namespace torchps {

// Reads a trained model: loads the state into `module` like LoadState, and returns the
// preprocessing for the inputs (data/preprocessing.h). `path` is a model file or a run folder.
// Returns errors of LoadState and Preprocessing::FromMetadata.
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

}  // namespace torchps
