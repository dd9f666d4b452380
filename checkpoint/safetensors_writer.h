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

  // `files` must outlive the writer. `header_room` is the maximum header size in bytes, from
  // SafetensorsHeaderRoom.
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
