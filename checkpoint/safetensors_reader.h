#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"
#include "storage/file_system.h"

namespace torchps {

// Reads a safetensors file, which may come from anywhere and be damaged: sizes are checked against
// the file's before anything is allocated for them.
//
// Thread-safe once Open and Checksum have returned.
class SafetensorsReader {
 public:
  // Reads the header. `files` must outlive the reader. DATA_LOSS: not such a file, with the reason.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem* files,
                                                                 const std::string& path);

  const std::string& path() const { return path_; }
  int64_t bytes() const { return file_->size(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Reads all of the file: its CRC-32C. Afterwards Read checks what it reads against what was read
  // here.
  absl::StatusOr<uint32_t> Checksum();

  // All of tensor i. REQUIRES: out has its bytes. DATA_LOSS: it is not what Checksum has read, or
  // has no values of its dtype.
  absl::Status Read(size_t i, absl::Span<char> out) const;

 private:
  SafetensorsReader(std::string path, std::unique_ptr<ReadableFile> file, std::string header_bytes,
                    SafetensorsHeader header);

  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
  const std::string header_bytes_;  // length and JSON
  const SafetensorsHeader header_;
  std::vector<uint32_t> crcs_;  // by tensor; empty before Checksum
};

}  // namespace torchps
