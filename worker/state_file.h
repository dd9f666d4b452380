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
// read. The state is every parameter, trained or frozen, and every buffer, under each of its names:
// a tied tensor, registered twice, is in the file twice, as in Python's state_dict(). All functions
// call the module's tensors from the calling thread.

namespace torchps {

// Returns each name whose tensor also has an earlier name, with that earlier name.
std::map<std::string, std::string> TiedNames(const torch::nn::Module& module);

// The bytes of such a file, made piece by piece, so that a model of any size takes little memory.
// Shares the module's tensors: Read returns their values at the time of the call.
class StateFile {
 public:
  // Takes the tensors whose name `wanted` accepts; null accepts all. INVALID_ARGUMENT names a
  // tensor that no file holds: sparse, quantized, or complex with 16-bit parts. A complex128 tensor
  // is pairs of F64 in the file (checkpoint/safetensors.h).
  static absl::StatusOr<StateFile> Of(
      const torch::nn::Module& module, std::map<std::string, std::string> metadata,
      const std::function<bool(const std::string& name)>& wanted = nullptr);

  // The size of the file.
  int64_t bytes() const { return bytes_; }
  // The number of tensors.
  size_t size() const { return tensors_.size(); }

  // Passes the file to the sink from its beginning to its end, at most `most` bytes at a time.
  // Returns the sink's first error. INTERNAL: copying tensors from a device failed.
  using Sink = std::function<absl::Status(int64_t offset, absl::string_view piece)>;
  absl::Status Read(size_t most, const Sink& sink) const;

 private:
  StateFile() = default;

  std::string header_;  // length and JSON
  std::vector<torch::Tensor> tensors_;
  int64_t bytes_ = 0;
};

// Writes the module's state to `path`, whole or not at all. Errors are those of FileSystem and
// StateFile::Of.
absl::Status SaveState(const torch::nn::Module& module, const std::string& path,
                       std::map<std::string, std::string> metadata = {});

// The differences between file and module that LoadState accepts.
enum class Match {
  kAll,     // the names are the same on both sides
  kCommon,  // skips names that only one side has: a backbone under a new head
};

// Reads the state into the module's tensors, by name. `path` is a safetensors file, a file of
// Python's torch.save(module.state_dict(), file), or the JSON index of such files as shards beside
// it; the contents decide which. Values are converted to the module's types. Floating-point numbers
// are rounded as torch rounds them, so that a float64 above float32's range becomes infinite. Any
// other conversion must keep each value. Skips tensors of dtypes that torchps does not read, unless
// the module has their names.
//
// INVALID_ARGUMENT names missing tensors, extra ones, those with another shape or values that do
// not convert, and a prefix that makes the names fit. NOT_FOUND, DATA_LOSS: of the file. INTERNAL:
// torch's. After an error the module is unchanged, since the whole file is in memory before the
// first tensor changes; only a device that fails during the copy keeps a part. `unmatched`, if
// given, gets the names of one side only.
absl::Status LoadState(torch::nn::Module& module, const std::string& path,
                       Match match = Match::kAll, std::vector<std::string>* unmatched = nullptr);

// The same for a TORCH_MODULE holder.
template <typename Net>
absl::Status LoadState(torch::nn::ModuleHolder<Net>& module, const std::string& path,
                       Match match = Match::kAll) {
  return LoadState(*module, path, match);
}

}  // namespace torchps
