#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Position and width of the tokens in a file.
struct TokenFormat {
  int64_t begin = 0;  // byte of the first token
  int width = 0;      // bytes of a token
  int64_t size = 0;   // number of tokens
};

// Bytes at the beginning of a file that hold a header.
constexpr int64_t kTokenHeaderBytes = 1024;

// Parses the header of a NumPy array (.npy) or of llm.c at the `beginning` of a file of `bytes`
// bytes. Returns nullopt where the file begins with neither.
//
// INVALID_ARGUMENT: the header names another type, shape or version. DATA_LOSS: the header counts
// more or fewer tokens than the file has.
absl::StatusOr<std::optional<TokenFormat>> ParseTokenHeader(absl::string_view beginning,
                                                            int64_t bytes);

// Returns INVALID_ARGUMENT if a file without a header does not look like tokens of 16 bits: it
// starts as an archive or a compressed file, or its `sample` looks like text, tokens of 8, 32 or 64
// bits, floating-point or big-endian numbers.
// `sample`: pieces of the file, the first from its beginning, each a multiple of 8 bytes but the
// last.
absl::Status CheckTokensOf16Bits(absl::string_view sample);

}  // namespace torchps
