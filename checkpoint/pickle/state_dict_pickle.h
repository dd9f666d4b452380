#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors.h"

namespace torchps {

// A tensor of a state_dict, as its pickle describes it: a view of a storage, which is an entry of
// its own, `data/STORAGE`, beside the pickle in the zip archive.
struct PickledTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::string other_dtype = {};  // torch's name of kOther
  std::string storage;
  // All of these count elements. The view lies within the storage, except for kOther.
  int64_t storage_elements = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// Parses data.pkl of torch.save(module.state_dict(), file) and returns its tensors, in its order.
// libtorch's own reader returns None for an OrderedDict.
//
// Skips entries that are no tensors, as an epoch. Calls no function that the file names, so bytes
// of any origin are safe. Thread-safe.
//
// DATA_LOSS: the words after "... is not a state_dict: ". A file whose tensors lie in a nested
// dictionary gets its path, as checkpoint['state_dict'].
absl::StatusOr<std::vector<PickledTensor>> ParseStateDictPickle(absl::string_view pickle);

}  // namespace torchps
