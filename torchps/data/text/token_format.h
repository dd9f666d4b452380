#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The position and width of the tokens in a file.
struct TokenFormat {
  int64_t begin = 0;  // offset of the first token in bytes
  int width = 0;      // bytes per token
  int64_t size = 0;   // number of tokens
};

// The maximum header size at the beginning of a file, in bytes.
constexpr int64_t kTokenHeaderBytes = 1024;

// Parses the header of a NumPy array (.npy) or of llm.c in `beginning`, for a file of `bytes`
// bytes. Returns nullopt if the file does not begin with either header.
//
// INVALID_ARGUMENT: the type, shape or version in the header is unsupported. DATA_LOSS: the token
// count in the header differs from the file's.
absl::StatusOr<std::optional<TokenFormat>> ParseTokenHeader(absl::string_view beginning,
                                                            int64_t bytes);

// Returns INVALID_ARGUMENT if a file without a header does not look like 16-bit tokens: it begins
// like an archive or a compressed file, or `sample` looks like text, tokens of 8, 32 or 64 bits,
// floating-point or big-endian numbers. `sample` contains pieces of the file, beginning with the
// first. Each piece except the last is a multiple of 8 bytes long.
absl::Status CheckTokensOf16Bits(absl::string_view sample);

}  // namespace torchps
