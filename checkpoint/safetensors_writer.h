#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors.h"
#include "storage/file_system.h"

namespace torchps {

// Writes a safetensors file of any size as a stream: room for the header is left at the beginning,
// and the header is written last, when all that it says is known. Under its name only when it is
// whole and on the disk; PATH.tmp until then, which is removed if Finish was not reached.
//
// Not thread-safe.
class SafetensorsWriter {
 public:
  struct Result {
    int64_t bytes = 0;
    uint32_t crc32c = 0;  // of the whole file
  };

  // `files` must outlive the writer. `header_room`: bytes of the header at most, as
  // SafetensorsHeaderRoom tells.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(FileSystem* files,
                                                                   std::string path,
                                                                   int64_t header_room);
  ~SafetensorsWriter();

  // The tensor that the bytes after this belong to. REQUIRES: the one before has all its bytes.
  void BeginTensor(std::string name, Dtype dtype, std::vector<int64_t> shape);
  // Its next bytes. REQUIRES: it has no more than its shape says.
  absl::Status Append(absl::string_view data);

  // Of all bytes behind the header so far.
  uint32_t data_crc32c() const { return data_crc_; }

  // REQUIRES: the last tensor has all its bytes, and the header fits into its room.
  absl::StatusOr<Result> Finish(const std::map<std::string, std::string>& metadata);

 private:
  SafetensorsWriter(FileSystem* files, std::string path, std::unique_ptr<WritableFile> file,
                    int64_t header_room);
  absl::Status Flush();

  FileSystem* const files_;
  const std::string path_;
  const int64_t header_room_;
  std::unique_ptr<WritableFile> file_;  // null once closed
  bool finished_ = false;
  std::vector<TensorInfo> tensors_;
  int64_t data_bytes_ = 0;
  uint32_t data_crc_ = 0;
  std::string small_;  // what is collected before it is worth a system call
};

}  // namespace torchps
