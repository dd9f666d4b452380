#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// The address of one server, as specified in --servers and --coordinator: "HOST:PORT", or
// "file:PATH" for a file that ps_server --address_file=PATH writes. Servers with an address file
// may restart at a different address; clients read the file again to find them.
//
// Plain value type.
class AddressSource {
 public:
  // Returns INVALID_ARGUMENT if `text` is neither form.
  static absl::StatusOr<AddressSource> Parse(absl::string_view text);

  // Returns the text passed to Parse().
  const std::string& text() const { return text_; }
  bool is_file() const;

  // Returns the current HOST:PORT, reading the file if there is one. Returns UNAVAILABLE if the
  // file does not exist yet, cannot be read, or does not contain an address.
  absl::StatusOr<std::string> Find() const;

 private:
  explicit AddressSource(std::string text) : text_(std::move(text)) {}

  std::string text_;
};

// Returns true if `text` names an address file instead of HOST:PORT.
bool IsAddressFile(absl::string_view text);

// Returns OK, or INVALID_ARGUMENT if `text` is not HOST:PORT with a port from 1 to 65535.
absl::Status CheckServerAddress(absl::string_view text);

// Atomically writes `address` to `path`, for AddressSource to read. The umask determines the file
// permissions. Returns the errors of FileSystem.
absl::Status WriteAddressFile(const std::string& path, const std::string& address);

}  // namespace torchps
