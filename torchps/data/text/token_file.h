#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/data/text/token_format.h"

namespace torchps {

// Reads a file of little-endian token numbers: without a header (16 bits, as nanoGPT's prepare.py
// writes), a one-dimensional NumPy array (.npy), or llm.c's format with a 1024-byte header. The
// file may be larger than memory: only the requested tokens are read.
//
// Uses pread instead of a mapping. So a shrinking file or a failing disk is an error, and does not
// end the process. Thread-safe.
class TokenFile {
 public:
  // Opens a file with `bits` per token: 16, 32 or 64; 0 uses the header. Without a header 0 means
  // 16, and files that look wider are refused.
  //
  // NOT_FOUND, PERMISSION_DENIED: system errors. INVALID_ARGUMENT: not a regular file, an array of
  // another type or shape, a header that contradicts `bits`, or a file that does not look like
  // 16-bit tokens. DATA_LOSS: the file is empty, does not contain a whole number of tokens, or the
  // number in the header differs.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path, int bits = 0);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return format_.size; }  // in tokens, when the file was opened
  int bits() const { return 8 * format_.width; }

  // Reads tokens `first` to `first` + `count` - 1 into `tokens`. DATA_LOSS: the file was truncated,
  // or a token is negative or above 2^31 - 1. Also returns system errors. REQUIRES: the range is in
  // [0, size()).
  absl::Status Read(int64_t first, int64_t count, int32_t* tokens) const;

  // Reads the whole file and returns the largest token. Returns the same errors as Read.
  absl::StatusOr<int32_t> Largest() const;

 private:
  TokenFile(std::string path, int fd);

  // Returns the file's bytes [begin, begin + size). DATA_LOSS: the file is shorter.
  absl::StatusOr<std::string> ReadBytes(int64_t begin, int64_t size) const;
  // Returns pieces from the whole file, about 1 MiB at most.
  absl::StatusOr<std::string> Sample() const;
  // Both set `format_`. For `wanted_bits` and errors, see Open.
  absl::Status FindFormat(int wanted_bits);
  absl::Status FormatWithoutHeader(int wanted_bits);
  // Adds the path before the message.
  absl::Status Named(const absl::Status& status) const;

  const std::string path_;
  const int fd_;
  int64_t bytes_ = 0;  // file size at opening
  TokenFormat format_;
};

// Returns the path of `part` ("train", "val") in `directory`: PART.npy if it exists and PART.bin
// does not, else PART.bin.
std::string TokenPath(const std::string& directory, const std::string& part);

}  // namespace torchps
