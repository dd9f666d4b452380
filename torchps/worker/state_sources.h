#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/checkpoint/safetensors.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Looks for a prefix, such as DistributedDataParallel's "module.", that maps the file's names to
// the module's when removed or added. Returns a clause with the prefix and a line of Python that
// fixes the file. Returns "" unless the prefix makes more names match, and at least half of the
// names on the side with fewer names.
std::string PrefixHint(const std::set<std::string>& module, const std::set<std::string>& file);

// Returns the dtype under which a file stores `tensor`. INVALID_ARGUMENT names a tensor that cannot
// be stored: sparse, quantized, or complex with 16-bit parts.
absl::StatusOr<Dtype> GetFileDtype(const std::string& name, const torch::Tensor& tensor);

// Returns the torch type for `dtype`, or nullopt for Dtype::kOther.
std::optional<torch::ScalarType> GetScalarType(Dtype dtype);

// Describes a tensor in a state file and reads the values.
struct StateSource {
  std::vector<int64_t> shape;
  std::optional<torch::ScalarType> type;  // null for a dtype that torchps does not read
  std::string other_dtype;                // the file's name of such a dtype
  // DATA_LOSS if the file is damaged. Throws torch's exceptions.
  std::function<absl::StatusOr<torch::Tensor>()> read;
};
using StateSources = std::map<std::string, StateSource>;

// Opens a state file. The contents, not the file name, determine the format:
//   - safetensors;
//   - the zip archive of Python's torch.save(module.state_dict(), file);
//   - the JSON index ("weight_map") of such files in the same folder.
// Borrows `files`. DATA_LOSS names the fault and the remedy. Throws torch's exceptions.
absl::StatusOr<StateSources> OpenState(FileSystem* files, const std::string& path);

}  // namespace torchps
