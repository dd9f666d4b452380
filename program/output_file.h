#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// A file that appears under its name when it is whole. A pipe or a device is written to directly.
// Not thread-safe.
class OutputFile {
 public:
  // An empty `path` is standard output. INVALID_ARGUMENT: it cannot be written.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(absl::string_view bytes);
  void Line(const std::string& line);
  // RESOURCE_EXHAUSTED: something could not be written.
  absl::Status Close();

  // Whether this is a file of its own, neither standard output nor a pipe.
  bool is_file() const { return temporary_ != path_; }

 private:
  OutputFile(std::FILE* file, std::string temporary, std::string path);

  std::FILE* file_;
  const std::string temporary_;  // becomes `path_`
  const std::string path_;
  bool is_whole_ = false;
};

}  // namespace torchps
