#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "storage/file_system.h"

namespace torchps {

// Where a run's servers keep their state (docs/storage.md has the layout), as psctl sees it.

// Whether a run may begin in `dir`, which need not exist: anew in an empty one (locks of processes
// that have ended do not count), with `resume` in one that a run has left something in.
// INVALID_ARGUMENT says what is there, or is not.
absl::Status CheckRunDirectory(const std::string& dir, bool resume);

// What lies in `dir`, in words: "2 checkpoints of a job, the newest number 14".
std::string DescribeRunDirectory(const std::string& dir);

// Makes `dir`, and in it the folders for logs and for the servers' files (StateDirectory()).
// RESOURCE_EXHAUSTED, with the system's words.
absl::Status PrepareRunDirectory(const std::string& dir);

// Keeps `dir`, which must exist, to this run: another one would write over its job and its report.
// FAILED_PRECONDITION: another process has it. None, and no error: there can be no lock.
absl::StatusOr<std::unique_ptr<FileLock>> LockRunDirectory(const std::string& dir);

// Puts the job's text there, which is what the model there is of. Errors as above.
absl::Status KeepJob(const std::string& dir, const JobSpec& job);

// Keeps the job file as the user wrote it beside the completed job. Errors as above.
absl::Status KeepWrittenJob(const std::string& dir, const std::string& text);

// Returns the job that KeepJob() has kept. NOT_FOUND: there is none. DATA_LOSS: it cannot be
// parsed.
absl::StatusOr<JobSpec> ReadKeptJob(const std::string& dir);

// Deletes the servers' state and the model in `dir`, so that another run may begin there. Keeps the
// job, the logs, the report and run.json. REQUIRES: one run that has trained nothing, and has
// ended, made all of that state.
void RemoveState(const std::string& dir);

// Deletes `dir`, a folder that was made for a run of which nothing came: only where nothing is in
// it but the job's text, locks and logs, and these are empty or say what has been told (`told`).
// Anything else there, and all stays as it is.
void RemoveUnusedRun(const std::string& dir, bool told);

// How a job that was cut short goes on from what lies in `dir`, with these flags beside --job,
// --dir and --resume, and how its model is had, as commands to paste; lines for people. Empty:
// there is nothing to go on from.
std::string ResumeCommand(const std::string& dir, const std::string& flags);

// Where the model of a run that began at `since` lies in `dir`, and how to load it, for people.
// Empty: there is none.
std::string DescribeModel(const std::string& dir, absl::Time since);

}  // namespace torchps
