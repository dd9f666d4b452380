#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Where one server is, as --servers and --coordinator name it: "HOST:PORT", or "file:PATH" for what
// ps_server --address_file=PATH has written to PATH. Such a server may come back at another
// address, with the same flag, and is found there by whoever reads the file again.
//
// A plain value.
class AddressSource {
 public:
  // INVALID_ARGUMENT: it is neither.
  static absl::StatusOr<AddressSource> Parse(absl::string_view text);

  // As it was given.
  const std::string& text() const { return text_; }
  bool is_file() const;

  // HOST:PORT, as it is at this moment: a file is read. UNAVAILABLE: there is no such file yet, or
  // it cannot be read, or has something else in it.
  absl::StatusOr<std::string> Find() const;

 private:
  explicit AddressSource(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

// Whether `text` names a file and no HOST:PORT.
bool IsAddressFile(absl::string_view text);

// OK, or INVALID_ARGUMENT: `text` is no HOST:PORT with a port from 1 to 65535.
absl::Status CheckServerAddress(absl::string_view text);

// Writes `address` to `path`, for AddressSource to read: all of it or nothing. Every user may read
// it, as far as the umask lets them. Errors are FileSystem's.
absl::Status WriteAddressFile(const std::string& path, const std::string& address);

}  // namespace torchps
