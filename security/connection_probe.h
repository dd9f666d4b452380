#pragma once

#include <string>

#include "absl/time/time.h"
#include "security/certificate_files.h"

namespace torchps {

// What a connection of our own tells about an address at which gRPC gets no answer. gRPC itself
// says UNAVAILABLE for a refused connection, a wrong host name, a web server and a certificate that
// has expired alike.
struct ProbeResult {
  enum Kind {
    kUnreachable,  // no connection; `reason` in words: "connection refused", "unknown host", ...
    kSilent,       // accepts the connection and says nothing: paused, overloaded or something else
    kClosed,       // accepts the connection and ends it: about to end, or something else
    kForeign,      // answers, but not in HTTP/2
    kRefused,      // one side does not want the other, and waiting will not change it: certificates
    kHttp2,        // answers as every gRPC server does
  };
  Kind kind = kUnreachable;
  // The end of a sentence that begins with the server's name.
  std::string reason;
};

// Connects to `address` ("HOST:PORT" or "[IPV6]:PORT"), by TLS if there are certificates, sends
// what a gRPC client sends first and looks at the first bytes of the answer. A server whose
// certificate is refused is told so, by one more connection (security/protocol_sniffer.h). Blocks
// for at most a few times `timeout`, not counting the resolution of a host name. Never fails: what
// went wrong is the result.
ProbeResult ProbeServer(const std::string& address, const CertificateFiles* certificates,
                        absl::Duration timeout);

}  // namespace torchps
