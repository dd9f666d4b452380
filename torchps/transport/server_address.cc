#include "torchps/transport/server_address.h"

#include <cstdint>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

constexpr absl::string_view kFile = "file:";

// DNS names contain at most 253 characters.
constexpr size_t kMaxAddressBytes = 300;

}  // namespace

bool IsAddressFile(absl::string_view text) { return absl::ConsumePrefix(&text, kFile); }

absl::Status CheckServerAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  bool is_address = colon != absl::string_view::npos && colon > 0 &&
                    text.size() <= kMaxAddressBytes && !IsAddressFile(text) &&
                    !absl::StrContains(text, "://");
  int port = 0;
  is_address =
      is_address && absl::SimpleAtoi(text.substr(colon + 1), &port) && port >= 1 && port <= 65535;
  for (const char character : text) {
    // Addresses appear in messages and in one-line files.
    is_address = is_address && absl::ascii_isgraph(static_cast<unsigned char>(character));
  }
  if (is_address) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", text.substr(0, kMaxAddressBytes), "' is not HOST:PORT"));
}

absl::StatusOr<AddressSource> AddressSource::Parse(absl::string_view text) {
  if (IsAddressFile(text)) {
    if (text.size() == kFile.size()) {
      return absl::InvalidArgumentError("'file:' names no file; expected file:PATH");
    }
  } else if (!CheckServerAddress(text).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is neither HOST:PORT nor file:PATH"));
  }
  return AddressSource(std::string(text));
}

bool AddressSource::is_file() const { return IsAddressFile(text_); }

absl::StatusOr<std::string> AddressSource::Find() const {
  if (!is_file()) return text_;
  const std::string path = text_.substr(kFile.size());
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const absl::StatusOr<std::string> contents =
      ReadWholeFile(*files, path, static_cast<int64_t>(kMaxAddressBytes) + 1);
  if (absl::IsNotFound(contents.status())) {
    return absl::UnavailableError(absl::StrCat("no server has written its address to ", path));
  }
  if (!contents.ok()) return absl::UnavailableError(contents.status().message());
  std::string address(absl::StripAsciiWhitespace(*contents));
  if (const absl::Status is_address = CheckServerAddress(address); !is_address.ok()) {
    return absl::UnavailableError(absl::StrCat(path, ": ", is_address.message()));
  }
  return address;
}

absl::Status WriteAddressFile(const std::string& path, const std::string& address) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  return WriteFileAtomically(*files, path, absl::StrCat(address, "\n"));
}

}  // namespace torchps
