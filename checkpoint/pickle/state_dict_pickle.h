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
  std::string storage;
  // All of these count elements. The view lies within the storage.
  int64_t storage_elements = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// What data.pkl of torch.save(module.state_dict(), file) says, in its order. Ours because libtorch
// reads an OrderedDict as None, so that its own reader takes no state_dict.
//
// Only dictionaries of tensors by name are taken: nothing that the file names is called, so bytes
// of any origin are safe. Thread-safe.
//
// DATA_LOSS: the words after "... is no state_dict: ", as "it holds more than tensors by name:
// 'optimizer' is a dictionary".
absl::StatusOr<std::vector<PickledTensor>> ParseStateDictPickle(absl::string_view pickle);

}  // namespace torchps
