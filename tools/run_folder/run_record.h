#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// How a run ended.
enum class RunOutcome { kFinished, kFailed, kStopped };

// The file run.json of a run's folder: how `psctl run` was started and how it ended. With
// job.textproto beside it, later commands need no flag of the run again. A value.
struct RunRecord {
  std::vector<std::string> command;  // the words typed
  std::string directory;             // the working directory of the command
  std::string host;                  // the machine of the command
  std::string version;               // of psctl
  std::string commit;                // empty: not known (common/process/version.h)
  absl::Time began;
  std::vector<std::string> servers;       // HOST:PORT of each server, once all of them listen
  std::vector<std::string> worker_hosts;  // of a hosts file, one entry per worker; else empty
  std::string data;                       // --data, as typed
  std::string certs;                      // --certs, absolute
  std::string report;                     // --report, absolute; empty: report.json in the folder
  // The program that was trained, where it is not ps_worker.
  std::string worker_binary;
  std::string worker_checksum;  // of its bytes; empty: it could not be read
  std::optional<absl::Time> ended;
  std::optional<int> exit_code;
  std::optional<RunOutcome> outcome;
  std::string reason;  // why the run failed or stopped; empty: it finished
};

// Returns the record of a run that this process begins now.
RunRecord RecordOfThisRun(const std::string& worker_binary);

// Sets the end of a run that ended now: its outcome, the reason and the exit code. CANCELLED means
// that it was stopped.
void EndRecord(const absl::Status& outcome, int exit_code, RunRecord& record);

// Writes run.json. RESOURCE_EXHAUSTED, with the system's words.
absl::Status WriteRunRecord(const std::string& dir, const RunRecord& record);

// NOT_FOUND: `dir` has no run.json. DATA_LOSS: it cannot be read.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& dir);

// Returns a checksum of the file's bytes; empty where it cannot be read.
std::string GetChecksum(const std::string& path);

// Returns the name of this machine.
std::string OwnHostName();

// "finished", "failed" or "stopped".
const char* OutcomeName(RunOutcome outcome);

}  // namespace torchps
