// The first bytes of a connection, from anybody: what the connection filter makes of them, and what
// a client that asks why it gets no connection reads in a server's answer.

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "security/protocol_sniffer.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);

  // Bytes come one by one: what is decided stays so, and is decided in time.
  Protocol decided = Protocol::kUndecided;
  for (size_t have = 0; have <= std::min(size, 2 * kSniffedBytes); ++have) {
    const Protocol opening = SniffProtocol(bytes.substr(0, have));
    FUZZ_CHECK(decided == Protocol::kUndecided || opening == decided);
    FUZZ_CHECK(have < kSniffedBytes || opening != Protocol::kUndecided);
    decided = opening;
  }

  const absl::optional<size_t> record = TlsRecordBytes(bytes.substr(0, kSniffedBytes));
  FUZZ_CHECK(!record.has_value() || *record < (size_t{1} << 16) + kSniffedBytes);
  FUZZ_CHECK(record == TlsRecordBytes(bytes));

  const absl::optional<std::string> reason = ParseGoAwayFrame(bytes);
  if (reason.has_value()) {
    FUZZ_CHECK(reason->size() <= size);
    FUZZ_CHECK(std::none_of(reason->begin(), reason->end(),
                            [](char c) { return absl::ascii_iscntrl(c); }));
    // What is read is what would be sent.
    FUZZ_CHECK(ParseGoAwayFrame(GoAwayFrame(*reason)) == reason);
  }
  // Whatever its length.
  FUZZ_CHECK(!AlertInWords(bytes).empty());
  return 0;
}
