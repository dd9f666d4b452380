#include "torchps/client/calls/retry_deadline.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/security/connection_probe.h"
#include "torchps/transport/server_address.h"

namespace torchps {
namespace {

// For calls that a server may park. After this time the same call is repeated.
constexpr absl::Duration kParkTimeout = absl::Seconds(30);
constexpr double kSlowestBytesPerSecond = 4 << 20;

}  // namespace

absl::Duration TransferTimeout(const BlockMap& map, int server) {
  double bytes = 0;
  for (const BlockId id : map.owned_by(server)) {
    bytes += static_cast<double>(map.blocks()[id].length * sizeof(float));
  }
  return kParkTimeout + absl::Seconds(bytes / kSlowestBytesPerSecond);
}

namespace {

constexpr absl::Duration kFirstLine = absl::Seconds(2);
constexpr absl::Duration kLineInterval = absl::Seconds(10);
constexpr absl::Duration kBusyPause = absl::Milliseconds(250);
// If a peer that never answered a call speaks another protocol after this time of silence, it is
// not a torchps server: a server speaks HTTP/2 as soon as it listens. Silence is not a proof: the
// kernel accepts connections for a frozen process, and a proxy also closes them.
constexpr absl::Duration kForeignAfter = absl::Seconds(3);
constexpr absl::Duration kProbeTimeout = absl::Milliseconds(500);

// Retries begin about as soon as the channel reconnects (torchps/transport/grpc_process.h).
Backoff::Options Pauses() {
  Backoff::Options pauses;
  pauses.max = absl::Seconds(1);
  return pauses;
}

}  // namespace

absl::Status NoTorchpsServer(const ServerEndpoint& server) {
  return absl::FailedPreconditionError(
      absl::StrCat(server.address, " answers, but is not a torchps server"));
}

RetryDeadline::RetryDeadline(const ServerEndpoint& server, Options options)
    : server_(server),
      options_(std::move(options)),
      backoff_(Pauses(), options_.seed + static_cast<uint64_t>(server.index)) {}

void RetryDeadline::MovedTo(const ServerEndpoint& server) {
  server_ = server;
  has_answered_ = true;
  backoff_.Reset();
}

absl::Duration RetryDeadline::silence() const {
  return silent_since_.has_value() ? options_.clock->Now() - *silent_since_ : absl::ZeroDuration();
}

bool RetryDeadline::MayRetry(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    // A call may return these if the connection or server fails during the call. Servers also
    // cancel a pull whose client does not read while other calls wait (torchps/server/data_plane).
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

void RetryDeadline::Answered() {
  has_answered_ = true;
  silent_since_.reset();
  busy_since_.reset();
  backoff_.Reset();
}

absl::Duration RetryDeadline::Busy(const std::string& what) {
  const absl::Duration now = options_.clock->Now();
  const std::optional<absl::Duration> since = busy_since_;
  Answered();
  busy_since_ = since.value_or(now);
  if (!since.has_value()) next_line_ = now + kFirstLine;
  if (now >= next_line_) {
    options_.log(absl::StrCat("waiting for ", server_.name(), ", which ", what));
    next_line_ = now + kLineInterval;
  }
  return kBusyPause;
}

absl::StatusOr<absl::Duration> RetryDeadline::Failed(const absl::Status& failure) {
  const absl::Duration now = options_.clock->Now();
  if (!silent_since_.has_value()) {
    silent_since_ = now;
    next_line_ = now + kFirstLine;
  }
  const absl::Duration silence = now - *silent_since_;
  const bool give_up = silence >= options_.patience;
  const bool line_due = now >= next_line_;
  const bool may_be_foreign = !has_answered_ && silence >= kForeignAfter;
  // Reports certificate problems at the first failure, because waiting does not solve them.
  const bool first_look = !has_answered_ && !has_looked_;
  has_looked_ = true;
  if (give_up || line_due || may_be_foreign || first_look) {
    std::string reason(failure.message());
    if (IsAddressFile(server_.address)) {
      reason = "no server has written its address there yet";
    } else if (!server_.address.empty()) {
      const ProbeResult probe =
          ProbeServer(server_.address, server_.certificates.get(), kProbeTimeout);
      if (!has_answered_ && probe.kind == ProbeResult::kRefused) {
        return absl::UnauthenticatedError(absl::StrCat(server_.name(), " ", probe.reason));
      }
      if (!has_answered_ && probe.kind == ProbeResult::kForeign && silence >= kForeignAfter) {
        return NoTorchpsServer(server_);
      }
      if (probe.kind != ProbeResult::kHttp2) reason = probe.reason;
    }
    if (give_up) {
      return absl::UnavailableError(absl::StrCat(server_.name(), " has not answered for ",
                                                 absl::FormatDuration(options_.patience), ": ",
                                                 reason));
    }
    if (line_due) {
      options_.log(absl::StrCat("waiting for ", server_.name(), ": ", reason));
      next_line_ = now + kLineInterval;
    }
  }
  // The delay ends no later than the next time at which this function may give up.
  const absl::Duration decision =
      !has_answered_ && silence < kForeignAfter ? kForeignAfter : options_.patience;
  return std::min(backoff_.Next(), decision - silence);
}

}  // namespace torchps
