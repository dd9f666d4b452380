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

// Returns whether the file begins as a safetensors file does, with a length that it can have and a
// JSON object. Errors are those of ReadAt.
absl::StatusOr<bool> LooksLikeSafetensors(const ReadableFile& file);

// Reads a safetensors file of any origin. Compares its sizes with the file's before it allocates
// memory for them.
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

  // Reads the whole file and returns its CRC-32C. Later calls of Read compare their bytes with the
  // bytes read here.
  absl::StatusOr<uint32_t> Checksum();

  // Reads tensor i. REQUIRES: `out` has the tensor's size. DATA_LOSS: the bytes differ from those
  // that Checksum read, or are no values of the tensor's dtype.
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
