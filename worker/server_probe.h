#pragma once

#include <string>

#include "absl/time/time.h"

namespace torchps {

// What a plain TCP connection tells about an address at which gRPC gets no answer. gRPC itself says
// UNAVAILABLE for a refused connection, a wrong host name and a web server alike.
struct ProbeResult {
  enum Kind {
    kUnreachable,  // no connection; `reason` in words: "connection refused", "unknown host", ...
    kSilent,       // accepts the connection and says nothing: paused, overloaded or something else
    kForeign,      // answers, but not in HTTP/2
    kHttp2,        // answers as every gRPC server does
  };
  Kind kind = kUnreachable;
  std::string reason;
};

// Connects to `address` ("HOST:PORT" or "[IPV6]:PORT"), sends what a gRPC client sends first and
// looks at the first bytes of the answer. Blocks for at most about `timeout`, not counting the
// resolution of a host name. Never fails: what went wrong is the result.
ProbeResult ProbeServer(const std::string& address, absl::Duration timeout);

}  // namespace torchps
