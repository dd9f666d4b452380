#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace torchps {

// Provides a file in memory with a path, for readers that need a path. Put() replaces the contents.
// Not thread-safe.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  void Put(const uint8_t* data, size_t size);
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace torchps
