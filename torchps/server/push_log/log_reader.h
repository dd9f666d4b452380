#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/server/push_log/log_segment.h"
#include "torchps/storage/file_system.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {

// The end of a log and its segments, as needed to continue the log.
struct LogEnd {
  std::vector<LogSegmentHeader> segments;  // ascending; empty: there is no log yet
  uint64_t last_sequence = 0;              // of the last record
  uint64_t records = 0;                    // records read
  int64_t cut_bytes = 0;                   // length of the torn tail after the last record
  // The last record that is known to be on disk. Records after it may have been read from the page
  // cache.
  uint64_t durable_sequence = 0;
  int64_t durable_bytes = 0;  // length of the last segment up to the end of that record
  std::string tail;           // the bytes of the records after that record
};

// Calls `visit` for each record of the log in `directory`, in order. The payload is valid during
// the call. Uses memory for the largest record plus some MiB. If the directory is missing, the log
// is empty.
//
// If no acknowledged record can follow a damaged record, the damage is a torn tail, and the log
// ends before it. DATA_LOSS: damage elsewhere, or a missing segment or record; the message names
// file and offset. FAILED_PRECONDITION: the log belongs to another job, server or program version.
// Returns other errors of the file system and of `visit` unchanged.
absl::StatusOr<LogEnd> ReadPushLog(
    FileSystem& files, const std::string& directory, const LogIdentity& identity,
    absl::FunctionRef<absl::Status(const LogRecord& record, const FramePayload& payload)> visit);

// FAILED_PRECONDITION if the directory contains a log of this job for another number of servers,
// with records that may be missing from checkpoints; the message explains how to continue.
// Otherwise as FileSystem.
absl::Status CheckLogsOfOtherCounts(FileSystem& files, const std::string& directory,
                                    uint64_t job_id, int server_count);

}  // namespace torchps
