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

// Whose log it is: one server's of one job.
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

// What a segment, one file of the log, begins with. Segments are numbered from 1 without gaps;
// checkpoints take away the first ones.
struct LogSegmentHeader {
  LogIdentity identity;
  uint64_t number = 0;
  // How much of the segment before belongs to the log. What that file has behind it was written and
  // never acknowledged: the tail that a crash tore, or what a failed sync made worthless.
  int64_t previous_bytes = 0;
  // Of the first record here.
  uint64_t first_sequence = 0;
  // Drawn anew for each segment: what its records are sealed with (log_record.h).
  uint64_t salt = 0;
};

inline constexpr size_t kLogSegmentHeaderBytes = 72;

std::array<uint8_t, kLogSegmentHeaderBytes> EncodeLogSegmentHeader(const LogSegmentHeader& header);

// Reads as many bytes as a header has, or all where the file has fewer. DATA_LOSS says what is
// wrong; FAILED_PRECONDITION: of another version of this program. All functions are thread-safe.
absl::StatusOr<LogSegmentHeader> ReadLogSegmentHeader(absl::Span<const uint8_t> bytes);

// "00000000000000000001.log", and back; nothing for a name that is no segment's.
std::string LogSegmentName(uint64_t number);
std::optional<uint64_t> LogSegmentNumber(absl::string_view name);

}  // namespace torchps
