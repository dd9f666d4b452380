#include "torchps/security/protocol_sniffer.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static_assert(kPreface.size() == kSniffedBytes);

constexpr absl::string_view kHttp1Methods[] = {"GET ",     "HEAD ",    "POST ",  "PUT ",  "DELETE ",
                                               "OPTIONS ", "CONNECT ", "PATCH ", "TRACE "};

// RFC 8446, 5.1 and 6.
constexpr char kAlertType = 21;
constexpr char kHandshakeType = 22;
constexpr char kTlsMajor = 3;
constexpr size_t kAlertRecordBytes = 7;
constexpr size_t kRecordHeaderBytes = 5;
constexpr char kFatal = 2;
constexpr char kBadCertificate = 42;
constexpr char kCertificateExpired = 45;
constexpr char kUnknownCa = 48;
constexpr char kProtocolVersionAlert = 70;
constexpr char kUnrecognizedName = 112;

// RFC 9113, 4.1, 6.8 and 7.
constexpr char kGoAwayType = 7;
constexpr size_t kGoAwayFields = 8;
constexpr char kInadequateSecurity = 12;
constexpr size_t kLongestReason = 512;

std::string Alert(char description) {
  return {kAlertType, kTlsMajor, kTlsMajor, 0, 2, kFatal, description};
}

bool StartsAlike(absl::string_view bytes, absl::string_view pattern) {
  const size_t size = std::min(bytes.size(), pattern.size());
  return bytes.substr(0, size) == pattern.substr(0, size);
}

}  // namespace

Protocol SniffProtocol(absl::string_view bytes) {
  if (bytes.empty()) return Protocol::kUndecided;
  if (StartsAlike(bytes, kPreface)) {
    return bytes.size() >= kPreface.size() ? Protocol::kHttp2 : Protocol::kUndecided;
  }
  if (bytes[0] == kHandshakeType || bytes[0] == kAlertType) {
    if (bytes.size() < 2) return Protocol::kUndecided;
    if (bytes[1] != kTlsMajor) return Protocol::kOther;
    if (bytes[0] == kHandshakeType) return Protocol::kTls;
    return bytes.size() < kAlertRecordBytes ? Protocol::kUndecided : Protocol::kTlsAlert;
  }
  for (const absl::string_view method : kHttp1Methods) {
    if (!StartsAlike(bytes, method)) continue;
    return bytes.size() >= method.size() ? Protocol::kHttp1 : Protocol::kUndecided;
  }
  return Protocol::kOther;
}

std::optional<size_t> TlsRecordBytes(absl::string_view bytes) {
  if (bytes.size() < kRecordHeaderBytes) return std::nullopt;
  return kRecordHeaderBytes + static_cast<uint8_t>(bytes[3]) * size_t{256} +
         static_cast<uint8_t>(bytes[4]);
}

std::string GoAwayFrame(absl::string_view reason) {
  reason = reason.substr(0, kLongestReason);
  const size_t length = kGoAwayFields + reason.size();
  std::string frame(kHttp2FrameHeaderBytes + kGoAwayFields, '\0');
  frame[1] = static_cast<char>(length >> 8);
  frame[2] = static_cast<char>(length & 0xff);
  frame[3] = kGoAwayType;
  frame.back() = kInadequateSecurity;
  return absl::StrCat(frame, reason);
}

std::optional<std::string> ParseGoAwayFrame(absl::string_view bytes) {
  if (bytes.size() < kHttp2FrameHeaderBytes + kGoAwayFields || bytes[0] != 0 ||
      bytes[3] != kGoAwayType ||
      bytes[kHttp2FrameHeaderBytes + kGoAwayFields - 1] != kInadequateSecurity) {
    return std::nullopt;
  }
  const size_t length =
      static_cast<uint8_t>(bytes[1]) * size_t{256} + static_cast<uint8_t>(bytes[2]);
  if (length < kGoAwayFields || length > kGoAwayFields + kLongestReason ||
      bytes.size() < kHttp2FrameHeaderBytes + length) {
    return std::nullopt;
  }
  std::string reason(bytes.substr(kHttp2FrameHeaderBytes + kGoAwayFields, length - kGoAwayFields));
  for (char& c : reason) {
    if (absl::ascii_iscntrl(c)) c = ' ';
  }
  return reason;
}

std::string Http1Refusal(absl::string_view reason) {
  return absl::StrCat(
      "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n",
      "Content-Length: ", reason.size() + 1, "\r\n\r\n", reason, "\n");
}

std::string NoTlsAlert() { return Alert(kProtocolVersionAlert); }

std::string AlertRecord(ServerAlert alert) {
  switch (alert) {
    case ServerAlert::kUnknownAuthority:
      return Alert(kUnknownCa);
    case ServerAlert::kExpired:
      return Alert(kCertificateExpired);
    case ServerAlert::kWrongName:
      return Alert(kUnrecognizedName);
    case ServerAlert::kOther:
      break;
  }
  return Alert(kBadCertificate);
}

std::string AlertInWords(absl::string_view record) {
  switch (record.size() < kAlertRecordBytes ? 0 : record[kAlertRecordBytes - 1]) {
    case kUnknownCa:
      return "does not know the authority that signed this server's certificate";
    case kCertificateExpired:
      return "finds this server's certificate expired or not valid yet";
    case kUnrecognizedName:
      return "finds that this server's certificate is not for the address that it called";
    default:
      return "does not accept this server's certificate";
  }
}

}  // namespace torchps
