#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/text/token_format.h"

namespace torchps {

// A file of token numbers, little-endian: without a header, as nanoGPT's prepare.py writes 16 bits,
// a NumPy array (.npy) of one dimension, or llm.c's format with its header of 1024 bytes. The file
// may be larger than memory: a read takes only the tokens it asks for.
//
// The class calls pread and maps nothing. A file that shrinks or a disk that fails is then an
// error; with a mapping it would end the process. Thread-safe.
class TokenFile {
 public:
  // `bits` of a token: 16, 32 or 64; 0 takes them from the header. Without a header 0 takes 16, and
  // refuses a file that looks wider.
  //
  // NOT_FOUND, PERMISSION_DENIED: as the system says. INVALID_ARGUMENT: not a regular file, an
  // array of another type or shape, a header that contradicts `bits`, or a file that does not look
  // like tokens of 16 bits. DATA_LOSS: not a whole number of tokens, none, or not as many as the
  // header says.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path, int bits = 0);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return format_.size; }  // in tokens, when it was opened
  int bits() const { return 8 * format_.width; }

  // Reads tokens `first` to `first` + `count` - 1 into `tokens`. DATA_LOSS: the file has become
  // shorter, or a token is negative or above 2^31 - 1. Others as the system says. REQUIRES: they
  // are inside [0, size()).
  absl::Status Read(int64_t first, int64_t count, int32_t* tokens) const;

  // The largest token; reads the whole file. Errors: those of Read.
  absl::StatusOr<int32_t> Largest() const;

 private:
  TokenFile(std::string path, int fd);

  // Returns the file's bytes [begin, begin + size). DATA_LOSS: the file ends before.
  absl::StatusOr<std::string> ReadBytes(int64_t begin, int64_t size) const;
  // Returns pieces of the whole file, at most about 1 MiB.
  absl::StatusOr<std::string> Sample() const;
  // Both set `format_`. `wanted_bits`, errors: see Open.
  absl::Status FindFormat(int wanted_bits);
  absl::Status FormatWithoutHeader(int wanted_bits);
  // Puts the path in front of the message.
  absl::Status Named(const absl::Status& status) const;

  const std::string path_;
  const int fd_;
  int64_t bytes_ = 0;  // size of the file when it was opened
  TokenFormat format_;
};

// Returns the path of `part` ("train", "val") in `directory`: PART.npy if it exists and PART.bin
// does not, else PART.bin.
std::string TokenPath(const std::string& directory, const std::string& part);

}  // namespace torchps
