#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "torchps/checkpoint/safetensors.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Returns true if the file begins with a plausible header length and a JSON object. Returns
// ReadAt's errors.
absl::StatusOr<bool> LooksLikeSafetensors(const ReadableFile& file);

// Reads a safetensors file, which may be untrusted. Checks sizes against the file size before
// allocating memory.
//
// Thread-safe, except that no other call may run during Checksum().
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

// Writes a safetensors file of any size as a stream. Reserves space for the header and writes it
// last, when the contents are known. The file is PATH.tmp until it is complete and synced. The
// destructor removes PATH.tmp if Finish was not called.
//
// Not thread-safe.
class SafetensorsWriter {
 public:
  struct Result {
    int64_t bytes = 0;
    uint32_t crc32c = 0;  // of the whole file
  };

  // `files` must outlive the writer. `header_room` is the maximum size of FormatSafetensorsHeader's
  // result in bytes.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(FileSystem* files,
                                                                   std::string path,
                                                                   int64_t header_room);
  ~SafetensorsWriter();

  // Begins a tensor; Append adds the tensor's bytes. REQUIRES: the previous tensor is complete.
  void BeginTensor(std::string name, Dtype dtype, std::vector<int64_t> shape);
  // Appends bytes of the current tensor. REQUIRES: the tensor's size is not exceeded.
  absl::Status Append(absl::string_view data);

  // CRC-32C of the data so far, without the header.
  uint32_t data_crc32c() const { return data_crc_; }

  // Writes the header with `metadata`, syncs the file and renames it from PATH.tmp to PATH.
  // REQUIRES: the last tensor is complete, and the header fits into `header_room`.
  absl::StatusOr<Result> Finish(const std::map<std::string, std::string>& metadata);

 private:
  SafetensorsWriter(FileSystem* files, std::string path, std::unique_ptr<WritableFile> file,
                    int64_t header_room);
  absl::Status Flush();

  FileSystem* const files_;
  const std::string path_;
  const int64_t header_room_;
  std::unique_ptr<WritableFile> file_;  // null after closing
  bool finished_ = false;
  std::vector<TensorInfo> tensors_;
  int64_t data_bytes_ = 0;
  uint32_t data_crc_ = 0;
  std::string small_;  // buffered bytes, to write in larger pieces
};

}  // namespace torchps
