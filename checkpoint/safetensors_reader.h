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

// Returns true if the file begins with a plausible header length and a JSON object. Returns
// ReadAt's errors.
absl::StatusOr<bool> LooksLikeSafetensors(const ReadableFile& file);

// Reads a safetensors file, which may be untrusted. Checks sizes against the file size before
// allocating memory.
//
// Thread-safe after Open and Checksum return.
class SafetensorsReader {
 public:
  // Reads the header. `files` must outlive the reader. DATA_LOSS: the file is not a safetensors
  // file; the message gives the reason.
  static absl::StatusOr<std::unique_ptr<SafetensorsReader>> Open(FileSystem* files,
                                                                 const std::string& path);

  const std::string& path() const { return path_; }
  int64_t bytes() const { return file_->size(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // Reads the whole file and returns the CRC-32C. Later calls of Read check that the bytes did not
  // change.
  absl::StatusOr<uint32_t> Checksum();

  // Reads tensor i. REQUIRES: `out` is as long as the tensor. DATA_LOSS: the bytes changed after
  // Checksum, or are not valid for the dtype.
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
