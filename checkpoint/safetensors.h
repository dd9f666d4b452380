#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The header of a safetensors file. Such a file is: the header's length as 8 bytes, little-endian;
// the header, JSON that may be padded with spaces; the tensors' bytes without a gap. Thread-safe.

// The format's name of each is the letters behind the k.
enum class Dtype { kBOOL, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

int64_t DtypeBytes(Dtype dtype);

// Whether `bytes` are values of `dtype`: of a boolean, all other bytes than 0 and 1 are none, and a
// program that has one in a bool may do anything. DATA_LOSS: the words after the tensor's name, as
// "has a boolean that is 7; expected 0 or 1".
absl::Status CheckElements(Dtype dtype, absl::string_view bytes);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // of its bytes, counted from the end of the header
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// What other readers take at most.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The JSON, without padding.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header);

// Takes tensors of the dtypes above whose bytes lie one after the other and are exactly
// `data_bytes`. DATA_LOSS names what is wrong: no such JSON, a name twice, sizes that do not agree.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

}  // namespace torchps
