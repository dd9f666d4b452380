#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/file_system.h"

namespace torchps {

// Writes a zip archive for torch.load: uncompressed entries that begin at multiples of 64 bytes.
// Uses Zip64 for sizes above 4 GiB. Other zip libraries do not both align and stream entries. The
// file is PATH.tmp until it is complete; the destructor removes PATH.tmp if Finish was not called.
//
// Not thread-safe.
class StoredZip {
 public:
  // `files` must outlive the archive.
  static absl::StatusOr<std::unique_ptr<StoredZip>> Create(FileSystem* files, std::string path);
  ~StoredZip();

  // Begins an entry of exactly `bytes` bytes. REQUIRES: the previous entry is complete; `name` is
  // ASCII.
  absl::Status BeginEntry(std::string name, uint64_t bytes);
  absl::Status Append(absl::string_view data);
  // Adds a complete entry.
  absl::Status AddEntry(std::string name, absl::string_view data);

  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
    uint64_t begin = 0;  // offset of the local header
    uint32_t crc = 0;
  };

  StoredZip(FileSystem* files, std::string path, std::unique_ptr<WritableFile> file);
  absl::Status EndEntry();

  FileSystem* const files_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  bool finished_ = false;
  std::vector<Entry> entries_;
  uint64_t written_ = 0;  // bytes of the last entry
};

}  // namespace torchps
