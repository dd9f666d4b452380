#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"

namespace torchps {

// TCP without gRPC, for drills and tests that speak to a server as no client of ours would.

// A socket that listens on a free port of 127.0.0.1, and the address it got. UNAVAILABLE: no port.
absl::StatusOr<FileDescriptor> ListenOnLoopback(std::string* address);

// A free port of 127.0.0.1 that no other process gets while the socket is open, and where a program
// that binds it with SO_REUSEADDR, as ours do, may listen all the same. UNAVAILABLE: no port.
absl::StatusOr<FileDescriptor> HoldLoopbackPort(int* port);

// A blocking connection to "127.0.0.1:PORT", from another loopback address if one is given
// ("127.0.0.2"). UNAVAILABLE: nobody listens there.
absl::StatusOr<FileDescriptor> ConnectTcp(const std::string& address, const std::string& from = "");

// The same without waiting for an answer, and with a socket that never blocks: an end that is not
// there shows when it is read or written.
absl::StatusOr<FileDescriptor> BeginTcp(const std::string& address, const std::string& from = "");

// Blocks until all of `bytes` are in the kernel's hands. UNAVAILABLE: the connection is gone.
absl::Status WriteAll(const FileDescriptor& socket, absl::string_view bytes);

// Closes with a reset: what is on its way is thrown away and the peer gets ECONNRESET.
void CloseWithReset(FileDescriptor socket);

// What a connection brought until it ended.
struct TcpEnd {
  enum Kind { kOpen, kClosed, kReset };
  Kind kind = kOpen;
  std::string bytes;
};

// Reads until the peer ends the connection, `bytes_wanted` have come or `timeout` is over.
TcpEnd ReadUntilEnd(const FileDescriptor& socket, absl::Duration timeout,
                    size_t bytes_wanted = SIZE_MAX);

}  // namespace torchps
