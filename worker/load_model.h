#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "absl/status/statusor.h"
#include "data/preprocessing.h"

namespace torchps {

// Reads a trained model: its state into `module`, as LoadState does, and the preprocessing that its
// inputs need (data/preprocessing.h). `path` is a model file, or a run's folder. Errors: those of
// LoadState and Preprocessing::FromMetadata.
absl::StatusOr<Preprocessing> LoadModel(torch::nn::Module& module, const std::string& path);

// The same for what TORCH_MODULE makes of a module.
template <typename Net>
absl::StatusOr<Preprocessing> LoadModel(torch::nn::ModuleHolder<Net>& module,
                                        const std::string& path) {
  return LoadModel(*module, path);
}

// The model file that `path` names: itself, or model.safetensors in a folder.
std::string MakeModelFile(const std::string& path);

// The metadata of a safetensors file; empty for a file in another format, which has none. Errors:
// those of SafetensorsReader and of opening the file.
absl::StatusOr<Preprocessing::Metadata> GetMetadata(const std::string& path);

}  // namespace torchps
