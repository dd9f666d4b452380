#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Writes a file that appears under the final name when it is complete. Writes directly to pipes and
// devices. Not thread-safe.
class OutputFile {
 public:
  // Opens `path`, or standard output if `path` is empty. INVALID_ARGUMENT: the file cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(absl::string_view bytes);
  void Line(const std::string& line);
  // RESOURCE_EXHAUSTED: a write failed.
  absl::Status Close();

  // True for a regular file; false for standard output, a pipe or a device.
  bool is_file() const { return temporary_ != path_; }

 private:
  OutputFile(std::FILE* file, std::string temporary, std::string path);

  std::FILE* file_;
  const std::string temporary_;  // renamed to `path_` when complete
  const std::string path_;
  bool is_whole_ = false;
};

}  // namespace torchps
