#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace torchps {

// Identifies the job and the server that a log belongs to.
struct LogIdentity {
  uint64_t job_id = 0;
  uint32_t server_index = 0;
  uint32_t server_count = 1;
  uint32_t blocks = 0;  // of the whole model

  friend bool operator==(const LogIdentity& a, const LogIdentity& b) {
    return a.job_id == b.job_id && a.server_index == b.server_index &&
           a.server_count == b.server_count && a.blocks == b.blocks;
  }
};

// Header of a segment, one file of the log. Segments are numbered from 1 without gaps. The server
// removes the oldest segments after a checkpoint.
struct LogSegmentHeader {
  LogIdentity identity;
  uint64_t number = 0;
  // Valid length of the previous segment. Later bytes in that file were never acknowledged: a torn
  // tail, or the data of a failed sync.
  int64_t previous_bytes = 0;
  // The sequence of the first record.
  uint64_t first_sequence = 0;
  // Random per segment; seals the records (log_record.h).
  uint64_t salt = 0;
};

inline constexpr size_t kLogSegmentHeaderBytes = 72;

std::array<uint8_t, kLogSegmentHeaderBytes> EncodeLogSegmentHeader(const LogSegmentHeader& header);

// Reads a header. `bytes` may be shorter than a header if the file is. DATA_LOSS: the header is
// damaged; the message names the fault. FAILED_PRECONDITION: another version of this program wrote
// it. All functions are thread-safe.
absl::StatusOr<LogSegmentHeader> ReadLogSegmentHeader(absl::Span<const uint8_t> bytes);

// Convert between a number and "00000000000000000001.log"; nullopt if `name` is not a segment's
// name.
std::string LogSegmentName(uint64_t number);
std::optional<uint64_t> LogSegmentNumber(absl::string_view name);

}  // namespace torchps
