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

// A tensor of a state file: its shape and type, and a function that reads its values.
struct StateSource {
  std::vector<int64_t> shape;
  absl::optional<torch::ScalarType> type;  // null for a dtype that torchps does not read
  std::string other_dtype;                 // the file's name of such a dtype
  // DATA_LOSS: the file is damaged. Throws what torch throws.
  std::function<absl::StatusOr<torch::Tensor>()> read;
};
using StateSources = std::map<std::string, StateSource>;

// Opens a file of tensors by name. The contents decide its format, whatever its ending:
//   - safetensors;
//   - the zip archive of Python's torch.save(module.state_dict(), file);
//   - the JSON index of such files ("weight_map"), which lie beside it.
// Borrows `files`. DATA_LOSS names the fault, and what to do. Throws what torch throws.
absl::StatusOr<StateSources> OpenState(FileSystem* files, const std::string& path);

}  // namespace torchps
