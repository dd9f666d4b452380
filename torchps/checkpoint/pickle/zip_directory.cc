#include "torchps/checkpoint/pickle/zip_directory.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace torchps {
namespace {

// See PKWARE's APPNOTE.TXT, sections 4.3.12 to 4.3.16.
constexpr absl::string_view kEntry("PK\1\2", 4);
constexpr absl::string_view kZip64End("PK\6\6", 4);
constexpr absl::string_view kZip64Locator("PK\6\7", 4);
constexpr absl::string_view kEnd("PK\5\6", 4);
constexpr int64_t kEntryBytes = 46;  // without the name, the extra field and the comment
constexpr int64_t kZip64EndBytes = 56;
constexpr int64_t kZip64LocatorBytes = 20;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kMaxCommentBytes = 0xffff;
// Enough for a million entries.
constexpr int64_t kMaxDirectoryBytes = 128 << 20;

absl::Status DamagedZip() {
  return absl::DataLossError("the directory of its zip archive is damaged");
}

// Reads a little-endian number.
int64_t Number(absl::string_view bytes, size_t at, int size) {
  uint64_t number = 0;
  for (int i = size; i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
  return static_cast<int64_t>(number);
}

// Reads a range of bytes. Returns DATA_LOSS if the range is not within the file.
absl::StatusOr<std::string> Read(const ReadableFile& file, int64_t offset, int64_t size) {
  if (offset < 0 || size < 0 || offset > file.size() || size > file.size() - offset) {
    return DamagedZip();
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  const absl::Status read = file.ReadAt(offset, absl::MakeSpan(&bytes[0], bytes.size()));
  if (!read.ok()) return read;
  return bytes;
}

// Reads the directory. Searches for it in the same way as torch's reader, so that both see the same
// entries.
absl::StatusOr<std::string> ReadDirectory(const ReadableFile& file) {
  const int64_t tail_bytes = std::min(file.size(), kEndBytes + kMaxCommentBytes);
  const absl::StatusOr<std::string> tail = Read(file, file.size() - tail_bytes, tail_bytes);
  if (!tail.ok()) return tail.status();
  if (tail_bytes < kEndBytes) return DamagedZip();
  const size_t at = absl::string_view(*tail).rfind(kEnd, tail->size() - kEndBytes);
  if (at == absl::string_view::npos) return DamagedZip();
  int64_t size = Number(*tail, at + 12, 4);
  int64_t offset = Number(*tail, at + 16, 4);

  const int64_t end = file.size() - tail_bytes + static_cast<int64_t>(at);
  if (end >= kZip64LocatorBytes) {
    const absl::StatusOr<std::string> locator =
        Read(file, end - kZip64LocatorBytes, kZip64LocatorBytes);
    if (!locator.ok()) return locator.status();
    if (locator->substr(0, kZip64Locator.size()) == kZip64Locator) {
      const absl::StatusOr<std::string> large = Read(file, Number(*locator, 8, 8), kZip64EndBytes);
      if (!large.ok()) return large.status();
      if (large->substr(0, kZip64End.size()) != kZip64End) return DamagedZip();
      size = Number(*large, 40, 8);
      offset = Number(*large, 48, 8);
    }
  }
  if (size > kMaxDirectoryBytes) return DamagedZip();
  return Read(file, offset, size);
}

}  // namespace

absl::Status CheckNothingIsCompressed(const ReadableFile& file) {
  const absl::StatusOr<std::string> directory = ReadDirectory(file);
  if (!directory.ok()) return directory.status();
  for (absl::string_view rest = *directory; !rest.empty();) {
    if (rest.size() < kEntryBytes || rest.substr(0, kEntry.size()) != kEntry) return DamagedZip();
    const int64_t name_bytes = Number(rest, 28, 2);
    const int64_t bytes = kEntryBytes + name_bytes + Number(rest, 30, 2) + Number(rest, 32, 2);
    if (bytes > static_cast<int64_t>(rest.size())) return DamagedZip();
    const absl::string_view name = rest.substr(kEntryBytes, static_cast<size_t>(name_bytes));
    // Archives of TorchScript and of C++'s torch::save have source files in code/, which may be
    // compressed. torchps does not read them: torchps/worker/state_sources.cc refuses such archives
    // with a clearer message.
    const bool is_code =
        absl::StartsWith(name.substr(std::min(name.find('/'), name.size())), "/code/");
    if (Number(rest, 10, 2) != 0 && !is_code) {
      return absl::DataLossError(absl::StrCat("its entry '", name, "' is compressed"));
    }
    rest.remove_prefix(static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

}  // namespace torchps
