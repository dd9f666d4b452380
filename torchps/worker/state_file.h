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

// Reads and writes a module's state_dict as a safetensors file, compatible with Python's
// safetensors. The state contains all parameters, trained or frozen, and all buffers, under each
// name. A tied tensor, registered twice, is in the file twice, as in Python's state_dict(). All
// functions use the module's tensors on the calling thread.

namespace torchps {

// Returns the second and later names of each tensor with several names, mapped to the tensor's
// first name.
std::map<std::string, std::string> TiedNames(const torch::nn::Module& module);

// Produces the bytes of a module's state file piece by piece, so that a model of any size needs
// little memory. Shares the module's tensors: Read() returns the values at the time of the call.
class StateFile {
 public:
  // Selects the tensors whose name `wanted` accepts; null accepts all. INVALID_ARGUMENT names a
  // tensor that a file cannot store: sparse, quantized, or complex with 16-bit parts. A complex128
  // tensor is stored as pairs of F64 (torchps/checkpoint/safetensors.h).
  static absl::StatusOr<StateFile> Of(
      const torch::nn::Module& module, std::map<std::string, std::string> metadata,
      const std::function<bool(const std::string& name)>& wanted = nullptr);

  // Returns the file size.
  int64_t bytes() const { return bytes_; }
  // Returns the size of the tensors in the file.
  int64_t tensor_bytes() const { return bytes_ - static_cast<int64_t>(header_.size()); }
  // Returns the number of tensors.
  size_t size() const { return tensors_.size(); }

  // Passes the file to `sink` in order, at most `most` bytes at a time. Returns the first error of
  // `sink`. INTERNAL if copying tensors from a device failed.
  using Sink = std::function<absl::Status(int64_t offset, absl::string_view piece)>;
  absl::Status Read(size_t most, const Sink& sink) const;

 private:
  StateFile() = default;

  std::string header_;  // the header's length, then JSON
  std::vector<torch::Tensor> tensors_;
  int64_t bytes_ = 0;
};

// Writes the module's state to `path` atomically. Returns errors of FileSystem and StateFile::Of.
absl::Status SaveState(const torch::nn::Module& module, const std::string& path,
                       std::map<std::string, std::string> metadata = {});

// The differences between file and module that LoadState accepts.
enum class Match {
  kAll,     // none: the names on both sides are the same
  kCommon,  // names on one side only, for example a backbone under a new head
};

// Loads the state into the module's tensors, by name. `path` is a safetensors file, a file of
// Python's torch.save(module.state_dict(), file), or a JSON index that names several such files
// (shards) in the same folder. The contents determine the format. Converts values to the module's
// types. Floating-point numbers are rounded as in torch, so a float64 above float32's range becomes
// infinite. Other conversions must keep each value. A tensor with an unsupported dtype is an error
// only if the module has a tensor of this name.
//
// INVALID_ARGUMENT names missing and extra tensors, tensors that differ in shape or do not convert,
// and a prefix that would make the names match. NOT_FOUND or DATA_LOSS for errors of the file.
// INTERNAL for errors of torch. After an error the module is unchanged, because the file is read
// before the first tensor changes. The exception is a device that fails during the copy.
// `unmatched`, if not null, receives the names that only the file or only the module has.
absl::Status LoadState(torch::nn::Module& module, const std::string& path,
                       Match match = Match::kAll, std::vector<std::string>* unmatched = nullptr);

// The same for a TORCH_MODULE holder.
template <typename Net>
absl::Status LoadState(torch::nn::ModuleHolder<Net>& module, const std::string& path,
                       Match match = Match::kAll) {
  return LoadState(*module, path, match);
}

}  // namespace torchps
