#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace torchps {

// What the first bytes of a connection say about who speaks there, and how one of another kind is
// sent away in words that our own programs can read (security/connection_probe.h). Pure functions.

enum class Protocol {
  kUndecided,  // more bytes may make it any of the others
  kHttp2,      // the client's preface (RFC 9113, 3.4): gRPC without TLS
  kTls,        // a TLS handshake record
  kTlsAlert,   // a TLS alert and nothing before it: see ServerAlert()
  kHttp1,      // a browser, curl, a health check
  kOther,
};

// As many bytes as a decision can take.
inline constexpr size_t kSniffedBytes = 24;

Protocol SniffProtocol(absl::string_view bytes);

// How long the TLS record is that begins so, its header included; nullopt: that takes more bytes,
// of which kSniffedBytes are enough.
absl::optional<size_t> TlsRecordBytes(absl::string_view bytes);

// An HTTP/2 GOAWAY frame with INADEQUATE_SECURITY and `reason`, which a plaintext client of ours
// that asks why it gets no connection finds in place of a server's SETTINGS.
std::string GoAwayFrame(absl::string_view reason);
// The reason in such a frame at the beginning of `bytes`, without control characters; nullopt: that
// is no such frame, or not all of it.
absl::optional<std::string> ParseGoAwayFrame(absl::string_view bytes);

// The answer to HTTP/1.
std::string Http1Refusal(absl::string_view reason);

// "protocol_version" as a TLS alert in the clear: what a server without TLS says to a TLS client.
std::string NoTlsAlert();

// A client of ours that refuses a server's certificate hangs up after the handshake, of which the
// server learns nothing. So it calls once more and says why, in an alert in the clear, which has
// room for a reason from TLS's own list and for nothing else.
enum class ServerAlert { kUnknownAuthority, kExpired, kWrongName, kOther };
std::string AlertRecord(ServerAlert alert);
// What such a client means, as the end of a sentence: "does not know the authority that ...".
std::string AlertInWords(absl::string_view record);

}  // namespace torchps
