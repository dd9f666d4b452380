#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace torchps {

// Identifies the protocol from the first bytes of a connection, and creates rejections that clients
// of other protocols can understand and torchps programs can read
// (torchps/security/connection_probe.h). Pure functions.

enum class Protocol {
  kUndecided,  // more bytes are needed
  kHttp2,      // the client's preface (RFC 9113, 3.4): gRPC without TLS
  kTls,        // a TLS handshake record
  kTlsAlert,   // a TLS alert as the first record; see ServerAlert
  kHttp1,      // a browser, curl or a health check
  kOther,
};

// The maximum number of bytes needed for a decision.
inline constexpr size_t kSniffedBytes = 24;
// The length (3 bytes), type, flags and stream (4) of an HTTP/2 frame.
inline constexpr size_t kHttp2FrameHeaderBytes = 9;

Protocol SniffProtocol(absl::string_view bytes);

// Returns the length of the TLS record that starts with `bytes`, including the record's header.
// Returns nullopt if more bytes are needed; kSniffedBytes are always enough.
std::optional<size_t> TlsRecordBytes(absl::string_view bytes);

// Returns an HTTP/2 GOAWAY frame with INADEQUATE_SECURITY and `reason`. ProbeServer() reads it in
// place of the server's SETTINGS when a plaintext client cannot connect.
std::string GoAwayFrame(absl::string_view reason);
// Returns the reason in a GOAWAY frame at the start of `bytes`, without control characters. Returns
// nullopt if there is no such frame or the frame is incomplete.
std::optional<std::string> ParseGoAwayFrame(absl::string_view bytes);

// Returns a response to an HTTP/1 request.
std::string Http1Refusal(absl::string_view reason);

// Returns an unencrypted TLS alert "protocol_version", with which a server without TLS answers a
// TLS client.
std::string NoTlsAlert();

// The reason for which a client rejected a server's certificate. The client closes the connection
// after the handshake, so the server does not learn the reason. The client then connects again and
// sends the reason as an unencrypted alert, which can only carry a code defined by TLS.
enum class ServerAlert { kUnknownAuthority, kExpired, kWrongName, kOther };
std::string AlertRecord(ServerAlert alert);
// Returns the meaning of a ServerAlert in a TLS record as the predicate of a sentence: "does not
// know the authority that ...".
std::string AlertInWords(absl::string_view record);

}  // namespace torchps
