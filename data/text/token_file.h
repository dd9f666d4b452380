#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// A file of token numbers, 16 bits each, little-endian and nothing else, as nanoGPT's prepare.py
// writes them and NumPy's memmap reads them. It may be larger than memory: only what is asked for
// is read, and what was read lately is in the kernel's cache.
//
// Reads instead of a mapping, for a file that shrinks or a disk that fails is then an error, where
// a mapping would end the process. Thread-safe.
class TokenFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED: as the system says. INVALID_ARGUMENT: not a regular file.
  // DATA_LOSS: an odd number of bytes, or none.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // in tokens, as it was opened

  // Tokens `first` to `first` + `count` - 1 into `tokens`. DATA_LOSS: the file has become shorter.
  // Others as the system says. REQUIRES: they are inside [0, size()).
  absl::Status Read(int64_t first, int64_t count, uint16_t* tokens) const;

  // The largest token; reads the whole file. Errors: those of Read.
  absl::StatusOr<uint16_t> Largest() const;

 private:
  TokenFile(std::string path, int fd);

  const std::string path_;
  const int fd_;
  int64_t size_ = 0;
};

}  // namespace torchps
