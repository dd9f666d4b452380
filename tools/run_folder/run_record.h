#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// The file run.json of a run's folder: how `psctl run` was started. With job.textproto beside it,
// later commands need no flag of the run again. A value.
struct RunRecord {
  std::vector<std::string> command;  // the words typed
  std::string directory;             // where they were typed
  std::string host;
  absl::Time began;
  std::optional<absl::Time> ended;
  std::optional<int> exit_code;
  // The program that was trained, where it is not ps_worker.
  std::string worker_binary;
  std::string worker_checksum;  // of its bytes; empty: it could not be read
};

// The record of a run that this process begins now.
RunRecord RecordOfThisRun(const std::string& worker_binary);

// RESOURCE_EXHAUSTED, with the system's words.
absl::Status WriteRunRecord(const std::string& dir, const RunRecord& record);

// NOT_FOUND: `dir` has none. DATA_LOSS: it cannot be read.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& dir);

// A checksum of the file's bytes; empty where it cannot be read.
std::string ChecksumOf(const std::string& path);

}  // namespace torchps
