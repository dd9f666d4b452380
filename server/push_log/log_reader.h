#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/push_log/log_record.h"
#include "server/push_log/log_segment.h"
#include "storage/file_system.h"
#include "wire/frame_payload.h"

namespace torchps {

// Where a log ends, for the life that goes on with it, and what is in it.
struct LogEnd {
  std::vector<LogSegmentHeader> segments;  // ascending; none: there is no log yet
  uint64_t last_sequence = 0;              // of the last record
  uint64_t records = 0;                    // that were read
  int64_t cut_bytes = 0;                   // behind the last record: a tail that a crash has torn
  // How far the log is known to be on the disk: nothing proves that of the last group, which may
  // have been read from the machine's memory.
  uint64_t durable_sequence = 0;
  int64_t durable_bytes = 0;  // of the last segment
  std::string tail;           // the records behind it
};

// Runs `visit` for each record of the log in `directory`, in order; the payload is valid during the
// call. Memory is bounded: the largest record and some MiB. A directory that is not there is an
// empty log.
//
// A damaged record that nothing acknowledged can follow is a torn tail, and the log ends before it.
// DATA_LOSS names file and offset: damage anywhere else, a segment or record that is missing.
// FAILED_PRECONDITION: a log of another job, server or program. Otherwise what the file system or
// `visit` says; no error of `visit` is taken for the log's.
absl::StatusOr<LogEnd> ReadPushLog(
    FileSystem& files, const std::string& directory, const LogIdentity& identity,
    absl::FunctionRef<absl::Status(const LogRecord& record, const FramePayload& payload)> visit);

}  // namespace torchps
