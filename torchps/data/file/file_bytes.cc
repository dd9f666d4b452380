#include "torchps/data/file/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

absl::Status TooLarge(const std::string& path, int64_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected at most ", max_bytes, " bytes of data, got more"));
}

absl::StatusOr<std::string> ReadRaw(const std::string& path, int64_t max_bytes) {
  // O_NONBLOCK, because opening a pipe without a writer would block forever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  absl::Cleanup close_fd = [fd] { close(fd); };

  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a file, got ",
                     S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket"));
  }
  if (info.st_size > max_bytes) return TooLarge(path, max_bytes);

  std::string bytes(info.st_size, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n = read(fd, bytes.data() + filled, bytes.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, path);
    if (n == 0) break;  // the file shrank after fstat; the format's reader reports the missing data
    filled += n;
  }
  bytes.resize(filled);
  return bytes;
}

absl::StatusOr<std::string> Inflate(const std::string& path, std::string& compressed,
                                    int64_t max_bytes) {
  z_stream stream;
  std::memset(&stream, 0, sizeof(stream));
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream, MAX_WBITS + kGzipOnly) != Z_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to inflate it"));
  }
  absl::Cleanup end_stream = [&stream] { inflateEnd(&stream); };

  // zlib counts in 32 bits, so input and output are passed in pieces.
  constexpr size_t kPiece = size_t{1} << 20;
  size_t consumed = 0;
  std::string bytes;
  // Separate from `bytes`, because resizing `bytes` would clear a new piece for each gzip member. A
  // file may contain a member for every 20 bytes.
  std::string piece(kPiece, '\0');
  while (true) {
    const size_t offered = std::min(kPiece, compressed.size() - consumed);
    stream.next_in = reinterpret_cast<Bytef*>(compressed.data() + consumed);
    stream.avail_in = offered;
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = kPiece;
    const int result = inflate(&stream, Z_NO_FLUSH);
    consumed += offered - stream.avail_in;
    bytes.append(piece, 0, kPiece - stream.avail_out);
    if (static_cast<int64_t>(bytes.size()) > max_bytes) return TooLarge(path, max_bytes);

    if (result == Z_STREAM_END) {
      if (consumed == compressed.size()) return bytes;
      inflateReset(&stream);  // another member, or garbage that the header check detects
    } else if (result == Z_BUF_ERROR ||
               (result == Z_OK && consumed == compressed.size() && stream.avail_out > 0)) {
      return absl::DataLossError(
          absl::StrCat(path, ": expected the end of the gzip data, got the end of the file after ",
                       compressed.size(), " bytes (truncated)"));
    } else if (result != Z_OK) {
      return absl::DataLossError(
          absl::StrCat(path, ": expected gzip data, got damaged data near byte ", consumed, " (",
                       stream.msg ? stream.msg : "zlib error", ")"));
    }
  }
}

}  // namespace

absl::StatusOr<std::string> ReadFileBytes(const std::string& path, int64_t max_bytes) {
  absl::StatusOr<std::string> raw = ReadRaw(path, max_bytes);
  if (!raw.ok()) return raw;
  const bool gzip = raw->size() >= 2 && (*raw)[0] == '\x1f' && (*raw)[1] == '\x8b';
  return gzip ? Inflate(path, *raw, max_bytes) : raw;
}

}  // namespace torchps
