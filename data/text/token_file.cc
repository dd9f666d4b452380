#include "data/text/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace torchps {
namespace {

constexpr int64_t kTokenBytes = 2;
// Of a scan: large enough that calls cost nothing beside the disk.
constexpr int64_t kPieceTokens = int64_t{1} << 19;

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe without a writer would wait for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  // It closes the file, whatever is wrong with it.
  std::unique_ptr<TokenFile> file(new TokenFile(path, fd));
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a file of tokens, got ",
                     S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket"));
  }
  if (info.st_size == 0 || info.st_size % kTokenBytes != 0) {
    return absl::DataLossError(absl::StrCat(
        path, ": expected tokens of 2 bytes each, at least one, got ", info.st_size, " bytes"));
  }
  file->size_ = info.st_size / kTokenBytes;
  return file;
}

TokenFile::TokenFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

TokenFile::~TokenFile() { close(fd_); }

absl::Status TokenFile::Read(int64_t first, int64_t count, uint16_t* tokens) const {
  TPS_DCHECK(first >= 0 && count >= 0 && first + count <= size_, "tokens are inside their file");
  auto* const bytes = reinterpret_cast<uint8_t*>(tokens);
  int64_t filled = 0;
  while (filled < count * kTokenBytes) {
    const ssize_t n =
        pread(fd_, bytes + filled, count * kTokenBytes - filled, first * kTokenBytes + filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, path_);
    if (n == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": expected ", size_,
                                              " tokens, as when it was opened, got its end after ",
                                              (first * kTokenBytes + filled) / kTokenBytes));
    }
    filled += n;
  }
  // In place: token i is made of bytes 2i and 2i + 1 alone.
  for (int64_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<uint16_t>(bytes[kTokenBytes * i] | bytes[kTokenBytes * i + 1] << 8);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint16_t> TokenFile::Largest() const {
  std::vector<uint16_t> piece(std::min(size_, kPieceTokens));
  uint16_t largest = 0;
  for (int64_t first = 0; first < size_; first += kPieceTokens) {
    const int64_t count = std::min(size_ - first, kPieceTokens);
    if (absl::Status status = Read(first, count, piece.data()); !status.ok()) return status;
    largest = std::max(largest, *std::max_element(piece.begin(), piece.begin() + count));
  }
  return largest;
}

}  // namespace torchps
