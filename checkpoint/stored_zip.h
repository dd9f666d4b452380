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

// Writes a zip archive whose entries are not compressed and begin at multiples of 64 bytes, which
// is the container that torch.load reads. Sizes beyond 4 GiB are written as Zip64. Ours because no
// library aligns entries and streams them. The file has its name only when it is whole; PATH.tmp
// until then, which is removed if Finish was not reached.
//
// Not thread-safe.
class StoredZip {
 public:
  // `files` must outlive the archive.
  static absl::StatusOr<std::unique_ptr<StoredZip>> Create(FileSystem* files, std::string path);
  ~StoredZip();

  // Begins an entry of exactly `bytes` bytes. REQUIRES: the one before is whole; `name` is plain.
  absl::Status BeginEntry(std::string name, uint64_t bytes);
  absl::Status Append(absl::string_view data);
  // A whole entry.
  absl::Status AddEntry(std::string name, absl::string_view data);

  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
    uint64_t begin = 0;  // of its local header
    uint32_t crc = 0;
  };

  StoredZip(FileSystem* files, std::string path, std::unique_ptr<WritableFile> file);
  absl::Status EndEntry();

  FileSystem* const files_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  bool finished_ = false;
  std::vector<Entry> entries_;
  uint64_t written_ = 0;  // of the last entry
};

}  // namespace torchps
