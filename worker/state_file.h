#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// A module's state_dict as a safetensors file, which Python's safetensors and `torchps::LoadState`
// read. The state is every parameter, trained or frozen, and every buffer, of whatever type, under
// each of its names: a tensor that is registered twice (tied) is in the file twice, as in Python's
// state_dict(). All functions call the module's tensors from the calling thread.

namespace torchps {

// Each name of the module's state whose tensor an earlier name has already, with that name.
std::map<std::string, std::string> TiedNames(const torch::nn::Module& module);

// The bytes of such a file, made a piece at a time, so that a model of any size passes through
// a piece of memory. Shares the module's tensors: what it hands out is what they hold then.
class StateFile {
 public:
  // With the tensors whose name `wanted` takes; null takes all. INVALID_ARGUMENT names a tensor
  // that a safetensors file cannot hold (sparse, complex, quantized).
  static absl::StatusOr<StateFile> Of(
      const torch::nn::Module& module, std::map<std::string, std::string> metadata,
      const std::function<bool(const std::string& name)>& wanted = nullptr);

  // Of the whole file.
  int64_t bytes() const { return bytes_; }
  // How many tensors it has.
  size_t size() const { return tensors_.size(); }

  // Hands out the file from its beginning to its end, at most `most` bytes at a time. The first
  // error is the sink's. INTERNAL: a device does not give its tensors back.
  using Sink = std::function<absl::Status(int64_t offset, absl::string_view piece)>;
  absl::Status Read(size_t most, const Sink& sink) const;

 private:
  StateFile() = default;

  std::string header_;  // length and JSON
  std::vector<torch::Tensor> tensors_;
  int64_t bytes_ = 0;
};

// Writes the module's state to `path`, whole or not at all. Errors are those of FileSystem, and
// StateFile::Of's.
absl::Status SaveState(const torch::nn::Module& module, const std::string& path,
                       std::map<std::string, std::string> metadata = {});

// Which differences between file and module LoadState bears.
enum class Match {
  kAll,     // the names are the same on both sides
  kCommon,  // names that only one side has are left alone: a backbone under a new head
};

// Reads the state into the module's tensors, by name. `path` is a safetensors file, or what
// Python's torch.save(module.state_dict()) writes if it ends in .pt or .pth. INVALID_ARGUMENT names
// what is missing, what is too much, and what has another shape or type. NOT_FOUND, DATA_LOSS: of
// the file. INTERNAL: torch's. After an error the module is as before, since the whole file is in
// memory before the first tensor changes; only a device that fails while values are copied to it
// keeps a part of them. `unmatched`, if given, gets the names that only one side has.
absl::Status LoadState(torch::nn::Module& module, const std::string& path,
                       Match match = Match::kAll, std::vector<std::string>* unmatched = nullptr);

// The same for what TORCH_MODULE makes of a module.
template <typename Net>
absl::Status LoadState(torch::nn::ModuleHolder<Net>& module, const std::string& path,
                       Match match = Match::kAll) {
  return LoadState(*module, path, match);
}

}  // namespace torchps
