#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Parses and formats the header of a safetensors file. Such a file contains the header length (8
// bytes, little-endian), the header (JSON, maybe padded with spaces), and the tensors' bytes
// without gaps. Thread-safe.

// The letters after the k are the format's dtype name, except for the last two:
//   - kC128: not in the format. The file stores F64 with a last dimension of 2, and the metadata
//     entry "complex" lists the tensor names as a JSON array. The functions below convert in both
//     directions.
//   - kOther: a dtype that torchps does not support, for example F8_E4M3. Returned only when
//     reading.
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

// Returns the element size in bytes; 1 for kOther.
int64_t DtypeBytes(Dtype dtype);

// Checks that `bytes` are valid values of `dtype`. A boolean must be 0 or 1, because any other byte
// in a C++ bool is undefined behavior. DATA_LOSS: the message completes the tensor's name, for
// example "has a boolean that is 7; expected 0 or 1".
absl::Status CheckElements(Dtype dtype, absl::string_view bytes);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // Byte offsets of the data, from the end of the header.
  int64_t end = 0;
  std::string other_dtype = {};  // the file's dtype name for kOther
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in data order
  std::map<std::string, std::string> metadata;
};

// Maximum header size in bytes, as in Python's safetensors.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Returns the JSON without padding. REQUIRES: the tensors do not include kOther.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header);

// Parses a header. The tensors must be contiguous and fill `data_bytes`. Skips unknown fields and
// metadata that are not strings. DATA_LOSS: invalid JSON, a duplicate name, or inconsistent sizes;
// the message names the fault.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

}  // namespace torchps
