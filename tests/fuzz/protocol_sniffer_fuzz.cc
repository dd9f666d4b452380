// Fuzzes the connection filter's protocol detection with the first bytes of a connection, and a
// client's parser of the server's refusal.

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/security/protocol_sniffer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);

  // Adds one byte at a time. A decision must not change later, and must be made after kSniffedBytes
  // at the latest.
  Protocol decided = Protocol::kUndecided;
  for (size_t have = 0; have <= std::min(size, 2 * kSniffedBytes); ++have) {
    const Protocol opening = SniffProtocol(bytes.substr(0, have));
    FUZZ_CHECK(decided == Protocol::kUndecided || opening == decided);
    FUZZ_CHECK(have < kSniffedBytes || opening != Protocol::kUndecided);
    decided = opening;
  }

  const std::optional<size_t> record = TlsRecordBytes(bytes.substr(0, kSniffedBytes));
  FUZZ_CHECK(!record.has_value() || *record < (size_t{1} << 16) + kSniffedBytes);
  FUZZ_CHECK(record == TlsRecordBytes(bytes));

  const std::optional<std::string> reason = ParseGoAwayFrame(bytes);
  if (reason.has_value()) {
    FUZZ_CHECK(reason->size() <= size);
    FUZZ_CHECK(std::none_of(reason->begin(), reason->end(),
                            [](char c) { return absl::ascii_iscntrl(c); }));
    // The parsed text must survive encoding and parsing.
    FUZZ_CHECK(ParseGoAwayFrame(GoAwayFrame(*reason)) == reason);
  }
  // AlertInWords() must return words for input of any length.
  FUZZ_CHECK(!AlertInWords(bytes).empty());
  return 0;
}
