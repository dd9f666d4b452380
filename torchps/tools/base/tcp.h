#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {

// TCP without gRPC, for drills and tests that send a server unusual traffic.

// Opens a socket that listens on a free port of 127.0.0.1 and returns the address in `address`.
// UNAVAILABLE: cannot listen.
absl::StatusOr<FileDescriptor> ListenOnLoopback(std::string* address);

// Reserves a free port of 127.0.0.1 while the socket is open. Other processes cannot get the port
// by chance, but a program that binds it with SO_REUSEADDR, as torchps programs do, can listen on
// it. UNAVAILABLE: could not reserve a port.
absl::StatusOr<FileDescriptor> HoldLoopbackPort(int* port);

// Opens a blocking connection to "127.0.0.1:PORT", optionally from another loopback address `from`
// ("127.0.0.2"). UNAVAILABLE: the connection failed.
absl::StatusOr<FileDescriptor> ConnectTcp(const std::string& address, const std::string& from = "");

// Like ConnectTcp(), but does not wait for the connection. The socket is non-blocking. A failed
// connection shows up in the first read or write.
absl::StatusOr<FileDescriptor> BeginTcp(const std::string& address, const std::string& from = "");

// Blocks until the kernel has accepted all bytes. UNAVAILABLE: the connection is closed.
absl::Status WriteAll(const FileDescriptor& socket, absl::string_view bytes);

// Closes the connection with a reset: discards data in transit, and the peer gets ECONNRESET.
void CloseWithReset(FileDescriptor socket);

// The bytes read from a connection, and how the connection ended.
struct TcpEnd {
  enum Kind { kOpen, kClosed, kReset };
  Kind kind = kOpen;
  std::string bytes;
};

// Reads until the peer closes the connection, `bytes_wanted` bytes arrive, or `timeout` passes.
TcpEnd ReadUntilEnd(const FileDescriptor& socket, absl::Duration timeout,
                    size_t bytes_wanted = SIZE_MAX);

}  // namespace torchps
