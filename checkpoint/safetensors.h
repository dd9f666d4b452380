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

// The letters behind the k are the format's name, except for the last two:
//   - kC128: the format has no such dtype. Its tensors are F64 with a last dimension of 2 in the
//     file, and the metadata entry "complex" lists their names as a JSON array. The functions below
//     convert both ways.
//   - kOther: a dtype that torchps does not read, as F8_E4M3. Only reading gives it.
enum class Dtype {
  kBOOL,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
  kOther
};

// Bytes of an element; 1 for kOther.
int64_t DtypeBytes(Dtype dtype);

// Checks that `bytes` are values of `dtype`. A boolean is 0 or 1; any other byte in a C++ bool is
// undefined behavior. DATA_LOSS: the words after the tensor's name, as "has a boolean that is 7;
// expected 0 or 1".
absl::Status CheckElements(Dtype dtype, absl::string_view bytes);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // of its bytes, counted from the end of the header
  int64_t end = 0;
  std::string other_dtype = {};  // the file's name of kOther
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// The limit of Python's safetensors.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Returns the JSON, without padding. REQUIRES: no tensor is kOther.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header);

// Parses a header whose tensors lie one after the other and fill `data_bytes`. Skips unknown fields
// and metadata that are no strings. DATA_LOSS names the fault: no such JSON, a duplicate name,
// sizes that disagree.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

}  // namespace torchps
