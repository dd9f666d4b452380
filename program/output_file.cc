#include "program/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path) {
  std::error_code unknown;
  const bool is_special =
      std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
  std::string temporary = is_special || path.empty() ? path : absl::StrCat(path, ".tmp");
  std::FILE* const file = path.empty() ? stdout : std::fopen(temporary.c_str(), "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write --out=", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<OutputFile>(new OutputFile(file, std::move(temporary), path));
}

OutputFile::OutputFile(std::FILE* file, std::string temporary, std::string path)
    : file_(file), temporary_(std::move(temporary)), path_(std::move(path)) {}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!is_whole_ && is_file()) std::remove(temporary_.c_str());
}

void OutputFile::Write(absl::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), file_);
}

void OutputFile::Line(const std::string& line) { Write(absl::StrCat(line, "\n")); }

absl::Status OutputFile::Close() {
  const bool failed = std::ferror(file_) != 0 || std::fflush(file_) != 0;
  const bool lost = (file_ != stdout && std::fclose(file_) != 0) || failed;
  file_ = nullptr;
  is_whole_ = !lost && (!is_file() || std::rename(temporary_.c_str(), path_.c_str()) == 0);
  if (is_whole_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot write ", path_.empty() ? "standard output" : path_, ": ", std::strerror(errno)));
}

}  // namespace torchps
