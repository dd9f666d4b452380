// Fuzzes the push log reader. Reads the input unchanged, then with corrected checksums, to reach
// the parsing behind the checksums.

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/types.h"
#include "torchps/server/push_log/log_reader.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/push_log/log_segment.h"
#include "torchps/transport/frame_codec.h"

namespace torchps {
namespace {

// Offsets of the lengths in a record (torchps/server/push_log/log_record.cc).
constexpr size_t kRowsAt = 10;
constexpr size_t kPayloadBytesAt = 64;
constexpr size_t kAbsentRunsAt = 72;

// Corrects the mark and the checksums of the records (SealLogRecord()), up to the first with an
// invalid length.
void Seal(uint64_t salt, std::vector<uint8_t>& segment) {
  uint64_t durable = 0;
  for (size_t at = kLogSegmentHeaderBytes; at + kLogRecordHeaderBytes <= segment.size();) {
    uint16_t rows = 0;
    uint32_t payload_bytes = 0;
    uint32_t absent_runs = 0;
    std::memcpy(&rows, &segment[at + kRowsAt], sizeof(rows));
    std::memcpy(&payload_bytes, &segment[at + kPayloadBytesAt], sizeof(payload_bytes));
    std::memcpy(&absent_runs, &segment[at + kAbsentRunsAt], sizeof(absent_runs));
    if (rows > kMaxSlots || payload_bytes > kMaxFramePayloadBytes) return;
    if (absent_runs > kMaxAbsentRuns) return;
    if (LogRecordBytes(rows, absent_runs, payload_bytes) > segment.size() - at) return;
    at += SealLogRecord(salt, durable++, &segment[at]);
  }
}

void Read(const std::vector<uint8_t>& segment, const LogIdentity& identity) {
  FaultyFileSystem files;
  FUZZ_CHECK(files.CreateDirectories("log").ok());
  {
    const auto file = files.CreateFile("log/" + LogSegmentName(1));
    FUZZ_CHECK(file.ok());
    FUZZ_CHECK((*file)
                   ->Append(absl::string_view(reinterpret_cast<const char*>(segment.data()),
                                              segment.size()))
                   .ok());
  }
  uint64_t records = 0;
  const auto end = ReadPushLog(files, "log", identity,
                               [&](const LogRecord& record, const FramePayload& payload) {
                                 ++records;
                                 FUZZ_CHECK(record.ledger.size() <= static_cast<size_t>(kMaxSlots));
                                 FUZZ_CHECK(CheckRuns(record.absent, int64_t{1} << 33).ok());
                                 payload.Check(16).IgnoreError();
                                 return absl::OkStatus();
                               });
  if (end.ok()) FUZZ_CHECK(end->records == records);
}

}  // namespace
}  // namespace torchps

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  LogIdentity identity;
  identity.job_id = 7;
  identity.blocks = 3;
  std::vector<uint8_t> segment(data, data + size);
  Read(segment, identity);
  if (size < kLogSegmentHeaderBytes) return 0;
  LogSegmentHeader header;
  header.identity = identity;
  header.number = 1;
  header.first_sequence = 1;
  header.salt = 0x0123456789abcdef;
  const std::array<uint8_t, kLogSegmentHeaderBytes> begin = EncodeLogSegmentHeader(header);
  std::memcpy(segment.data(), begin.data(), begin.size());
  Seal(header.salt, segment);
  Read(segment, identity);
  return 0;
}
