#pragma once

#include <string>

#include "absl/time/time.h"
#include "torchps/security/certificate_files.h"

namespace torchps {

// Diagnosis of an address at which gRPC calls fail. gRPC itself returns UNAVAILABLE alike for a
// refused connection, a wrong host name, a web server and an expired certificate.
struct ProbeResult {
  enum Kind {
    kUnreachable,  // cannot connect; `reason` is "connection refused", "unknown host", ...
    // Accepts connections, but does not answer, or ends them during the TLS handshake: paused,
    // overloaded or not a torchps server.
    kSilent,
    kClosed,   // accepts and closes connections: shutting down, or not a torchps server
    kForeign,  // does not speak HTTP/2
    kRefused,  // one side rejects the other permanently, for example because of a certificate
    kHttp2,    // answers like a gRPC server
  };
  Kind kind = kUnreachable;
  // Predicate of a sentence with the server as its subject.
  std::string reason;
};

// Connects to `address` ("HOST:PORT" or "[IPV6]:PORT"), using TLS if `certificates` is not null.
// Sends the first bytes of a gRPC client and examines the first bytes of the answer. If the
// server's certificate is rejected, reports this to the server on a second connection
// (torchps/security/protocol_sniffer.h). Blocks for at most a few times `timeout`, plus the time to
// resolve the host name. Errors are part of the result.
ProbeResult ProbeServer(const std::string& address, const CertificateFiles* certificates,
                        absl::Duration timeout);

}  // namespace torchps
