#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace torchps {

// Outcome of a run.
enum class RunOutcome { kFinished, kFailed, kStopped };

// Contents of run.json in a run's folder: how `psctl run` was started and how it ended. Later
// commands read it and job.textproto, so the user need not repeat the run's flags.
struct RunRecord {
  std::vector<std::string> command;  // the command line
  std::string directory;             // working directory of the command
  std::string host;                  // machine that ran the command
  std::string version;               // of psctl
  std::string commit;                // empty if unknown (torchps/common/process/version.h)
  absl::Time began;
  std::vector<std::string> servers;       // HOST:PORT of each server, set when the servers listen
  std::vector<std::string> worker_hosts;  // one entry per worker in a hosts file; may be empty
  std::string data;                       // value of --data
  std::string certs;                      // --certs, absolute
  std::string report;                     // --report, absolute; empty: report.json in the folder
  // The trained program, if it is not ps_worker.
  std::string worker_binary;
  std::string worker_checksum;  // of the program file; empty if unreadable
  std::optional<absl::Time> ended;
  std::optional<int> exit_code;
  std::optional<RunOutcome> outcome;
  std::string reason;  // why the run failed or stopped; empty if it finished
};

// Returns the record of a run that this process starts now.
RunRecord RecordOfThisRun(const std::string& worker_binary);

// Sets the outcome, the reason and the exit code of a run that ended now. CANCELLED means that the
// run was stopped.
void EndRecord(const absl::Status& outcome, int exit_code, RunRecord& record);

// Writes run.json. RESOURCE_EXHAUSTED: failed; the message contains the system's error.
absl::Status WriteRunRecord(const std::string& dir, const RunRecord& record);

// Reads run.json. NOT_FOUND: `dir` does not contain run.json. DATA_LOSS: it cannot be parsed.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& dir);

// Returns a checksum of the file, or "" if it cannot be read.
std::string GetChecksum(const std::string& path);

// Returns the name of this machine.
std::string OwnHostName();

// Returns "finished", "failed" or "stopped".
const char* OutcomeName(RunOutcome outcome);

}  // namespace torchps
