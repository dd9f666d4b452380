#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "checkpoint/safetensors.h"
#include "storage/file_system.h"

namespace torchps {

// Describes a tensor in a state file and reads the values.
struct StateSource {
  std::vector<int64_t> shape;
  absl::optional<torch::ScalarType> type;  // null for a dtype that torchps does not read
  std::string other_dtype;                 // the file's name of such a dtype
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
