#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/checkpoint/safetensors.h"

namespace torchps {

// Describes a tensor of a state_dict, from the pickle: a view of a storage. The storage is a
// separate entry `data/STORAGE` in the zip archive.
struct PickledTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::string other_dtype = {};  // torch's dtype name for kOther
  std::string storage;
  // In elements. The view is inside the storage, except for kOther.
  int64_t storage_elements = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// Parses data.pkl of torch.save(module.state_dict(), file) and returns the tensors in file order.
// Replaces libtorch's reader, which returns None for an OrderedDict.
//
// Skips entries that are not tensors, for example an epoch. Does not call functions that the file
// names, and uses at most 32 MiB and 8 times `file_bytes`, the size of the whole file. So untrusted
// bytes are safe. Thread-safe.
//
// DATA_LOSS: the message completes "... is not a state_dict: ". If the tensors are in a nested
// dictionary, the message contains the path, for example checkpoint['state_dict'].
absl::StatusOr<std::vector<PickledTensor>> ParseStateDictPickle(absl::string_view pickle,
                                                                int64_t file_bytes);

}  // namespace torchps
