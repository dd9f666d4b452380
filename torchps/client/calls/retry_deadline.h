#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"

namespace torchps {

// Returns the timeout of one attempt to transfer all blocks of `server` in one direction. It covers
// the bytes on a slow link and the time that a server may park the call. After the timeout, the
// attempt is repeated from the beginning.
absl::Duration TransferTimeout(const BlockMap& map, int server);

// Decides about a server that does not answer: when to retry, when to log, and when to give up. Use
// one per server and thread. Not thread-safe.
class RetryDeadline {
 public:
  struct Options {
    // How long the server may be silent. Zero: fail at once.
    absl::Duration patience = absl::Seconds(60);
    // Called with a line after 2 s of silence and every 10 s after that.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
    // Random seed of the backoff.
    uint64_t seed = 0;
  };

  RetryDeadline(const ServerEndpoint& server, Options options);

  // Changes the server's address; the silence continues. After this, a program there that is not a
  // torchps server is retried, because it may have taken over a port while the server was down.
  void MovedTo(const ServerEndpoint& server);

  // How long the server has been silent; zero if it answered the last call.
  absl::Duration silence() const;

  // True if a call with this status may be repeated under the same name, because the server was
  // unreachable or the outcome is unknown.
  static bool MayRetry(const absl::Status& status);

  // Records an answer of any kind.
  void Answered();

  // Records that the server is busy with `what` and cannot serve yet. Returns the delay before the
  // next attempt. Busy time does not count as silence and is not limited, but is logged in the same
  // way.
  absl::Duration Busy(const std::string& what);

  // Records a failed call that may be repeated. Returns the delay before the next attempt.
  // UNAVAILABLE: the patience is used up. FAILED_PRECONDITION: the program at the address is not a
  // torchps server. UNAUTHENTICATED: a wrong or missing certificate prevents the connection. May
  // block for about one second to probe the address.
  absl::StatusOr<absl::Duration> Failed(const absl::Status& failure);

 private:
  ServerEndpoint server_;
  const Options options_;
  Backoff backoff_;
  bool has_answered_ = false;
  bool has_looked_ = false;
  std::optional<absl::Duration> silent_since_;
  std::optional<absl::Duration> busy_since_;
  // Time of the next log line about waiting.
  absl::Duration next_line_;
};

// Returns the error for an address that does not speak gRPC or does not know torchps calls.
absl::Status NoTorchpsServer(const ServerEndpoint& server);

}  // namespace torchps
