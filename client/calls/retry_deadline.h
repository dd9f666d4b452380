#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/calls/server_channel.h"
#include "common/backoff.h"
#include "common/clock.h"

namespace torchps {

// What to do about a server that does not answer: when to try again, what to tell the user
// meanwhile, when to give up. One per server and thread; not thread-safe.
class RetryDeadline {
 public:
  struct Options {
    // How long a server may be silent. Zero: not at all.
    absl::Duration patience = absl::Seconds(60);
    // Gets one line after 2 s of silence and then every 10 s.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    // Borrowed.
    const Clock* clock = nullptr;
    // Of the backoff's draws.
    uint64_t seed = 0;
  };

  RetryDeadline(const ServerEndpoint& server, Options options);

  // The server is looked for at `server` from here on, and has been silent for as long as before.
  // Whoever answers there and is no server of ours is waited out, as one that has taken the place
  // of a server that was away.
  void MovedTo(const ServerEndpoint& server);

  // For how long the server has been silent; zero: its last call was answered.
  absl::Duration silence() const;

  // Whether a call that ended so may be tried again with the same name: the server was away, or
  // the outcome is unknown.
  static bool MayRetry(const absl::Status& status);

  // The server has said something, whatever it was.
  void Answered();

  // The server has said that it is at `what` and cannot serve yet: how long to wait before it is
  // asked again. However long that takes, it is no silence; the user hears of it as of silence.
  absl::Duration Busy(const std::string& what);

  // After a call that may be retried: how long to wait before that. UNAVAILABLE: the patience is
  // used up. FAILED_PRECONDITION: something answers there, but it is no server of ours.
  // UNAUTHENTICATED: one side's certificate, or the want of one, keeps it from ever answering. May
  // block for about a second, to look at the address.
  absl::StatusOr<absl::Duration> Failed(const absl::Status& failure);

 private:
  ServerEndpoint server_;
  const Options options_;
  Backoff backoff_;
  bool has_answered_ = false;
  bool has_looked_ = false;
  std::optional<absl::Duration> silent_since_;
  std::optional<absl::Duration> busy_since_;
  // When the user hears next of what is waited for.
  absl::Duration next_line_;
};

// The error for an address that speaks gRPC but knows none of our calls, or does not speak it.
absl::Status NoTorchpsServer(const ServerEndpoint& server);

}  // namespace torchps
