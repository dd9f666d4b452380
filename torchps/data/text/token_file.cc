#include "torchps/data/text/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

// Tokens per read in a scan; enough to make the system calls cheap.
constexpr int64_t kPieceTokens = int64_t{1} << 19;

// Number and size in bytes of the pieces from which the token width of a file without a header is
// detected.
constexpr int64_t kSamplePieces = 16;
constexpr int64_t kSamplePieceBytes = int64_t{1} << 16;

// Converts little-endian numbers to `tokens`; `first` is the index of the first in the file.
// DATA_LOSS: a token is negative or above 2^31 - 1.
template <typename Number>
absl::Status ConvertTokens(const char* bytes, int64_t first, int64_t count, int32_t* tokens) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they are");
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  for (int64_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, bytes + i * sizeof(number), sizeof(number));
    const int64_t token = number;
    if (token < 0 || token > kMax) {
      return absl::DataLossError(absl::StrFormat(
          "expected tokens of 0 to %d, got %d at token %d (the file is damaged, or its tokens are "
          "not of %d bits: see data.tokens.bits)",
          kMax, token, first + i, 8 * sizeof(number)));
    }
    tokens[i] = static_cast<int32_t>(token);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path, int bits) {
  // O_NONBLOCK, because opening a pipe without a writer would block forever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  // Owns the descriptor, and closes it on errors.
  std::unique_ptr<TokenFile> file(new TokenFile(path, fd));
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a file of tokens, got ",
                     S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket"));
  }
  file->bytes_ = info.st_size;
  if (absl::Status status = file->FindFormat(bits); !status.ok()) return status;
  if (file->size() >= 1) return file;
  return absl::DataLossError(absl::StrCat(path, ": expected at least one token, got none"));
}

TokenFile::TokenFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

TokenFile::~TokenFile() { close(fd_); }

absl::Status TokenFile::FindFormat(int wanted_bits) {
  const absl::StatusOr<std::string> beginning = ReadBytes(0, std::min(bytes_, kTokenHeaderBytes));
  if (!beginning.ok()) return beginning.status();
  const absl::StatusOr<std::optional<TokenFormat>> header = ParseTokenHeader(*beginning, bytes_);
  if (!header.ok()) return Named(header.status());
  if (!header->has_value()) return FormatWithoutHeader(wanted_bits);
  format_ = **header;
  if (wanted_bits == 0 || wanted_bits == bits()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: expected tokens of %d bits, as in data.tokens.bits, got %d bits in the file's header "
      "(leave data.tokens.bits out)",
      path_, wanted_bits, bits()));
}

absl::Status TokenFile::FormatWithoutHeader(int wanted_bits) {
  if (wanted_bits == 0) {
    const absl::StatusOr<std::string> sample = Sample();
    if (!sample.ok()) return sample.status();
    const absl::Status checked = CheckTokensOf16Bits(*sample);
    if (!checked.ok()) return Named(checked);
  }
  format_.width = wanted_bits == 0 ? 2 : wanted_bits / 8;
  format_.size = bytes_ / format_.width;
  if (bytes_ % format_.width == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "%s: expected tokens of %d bytes each, got %d bytes (truncated, or see data.tokens.bits)",
      path_, format_.width, bytes_));
}

absl::StatusOr<std::string> TokenFile::Sample() const {
  const int64_t step = std::max(kSamplePieceBytes, bytes_ / kSamplePieces / 8 * 8);
  std::string sample;
  for (int64_t begin = 0; begin < bytes_; begin += step) {
    const absl::StatusOr<std::string> piece =
        ReadBytes(begin, std::min(bytes_ - begin, kSamplePieceBytes));
    if (!piece.ok()) return piece.status();
    sample += *piece;
  }
  return sample;
}

absl::Status TokenFile::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path_, ": ", status.message()));
}

absl::StatusOr<std::string> TokenFile::ReadBytes(int64_t begin, int64_t size) const {
  std::string bytes(size, '\0');
  int64_t filled = 0;
  while (filled < size) {
    const ssize_t n = pread(fd_, bytes.data() + filled, size - filled, begin + filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, path_);
    if (n == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": expected ", bytes_,
                       " bytes, as at opening, got the end of the file after ", begin + filled));
    }
    filled += n;
  }
  return bytes;
}

absl::Status TokenFile::Read(int64_t first, int64_t count, int32_t* tokens) const {
  TPS_DCHECK(first >= 0 && count >= 0 && first + count <= size(), "tokens are inside their file");
  const int width = format_.width;
  const absl::StatusOr<std::string> bytes = ReadBytes(format_.begin + first * width, count * width);
  if (!bytes.ok()) return bytes.status();
  const auto convert = width == 2   ? &ConvertTokens<uint16_t>
                       : width == 4 ? &ConvertTokens<int32_t>
                                    : &ConvertTokens<int64_t>;
  return Named(convert(bytes->data(), first, count, tokens));
}

absl::StatusOr<int32_t> TokenFile::Largest() const {
  std::vector<int32_t> piece(std::min(size(), kPieceTokens));
  int32_t largest = 0;
  for (int64_t first = 0; first < size(); first += kPieceTokens) {
    const int64_t count = std::min(size() - first, kPieceTokens);
    if (absl::Status status = Read(first, count, piece.data()); !status.ok()) return status;
    largest = std::max(largest, *std::max_element(piece.begin(), piece.begin() + count));
  }
  return largest;
}

std::string TokenPath(const std::string& directory, const std::string& part) {
  const std::string plain = absl::StrCat(directory, "/", part, ".bin");
  const std::string numpy = absl::StrCat(directory, "/", part, ".npy");
  const bool takes_numpy = access(plain.c_str(), F_OK) != 0 && access(numpy.c_str(), F_OK) == 0;
  return takes_numpy ? numpy : plain;
}

}  // namespace torchps
