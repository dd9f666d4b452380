#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/proto/job.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// The directory with the state of a run's servers (docs/storage.md describes the layout).

// Checks that a run may start in `dir`, which may not exist yet. Without `resume`, `dir` must be
// empty except for locks of finished processes. With `resume`, it must contain the state of a run.
// INVALID_ARGUMENT: the contents do not match; the message describes them.
absl::Status CheckRunDirectory(const std::string& dir, bool resume);

// Describes the contents of `dir`: "2 checkpoints of a job, the newest number 14".
std::string DescribeRunDirectory(const std::string& dir);

// Creates `dir`, and in it the folders for logs and for the servers' files (StateDirectory()).
// RESOURCE_EXHAUSTED: failed; the message contains the system's error.
absl::Status PrepareRunDirectory(const std::string& dir);

// Reserves the existing directory `dir` for this run, so that another run does not overwrite the
// job and the report. Returns null if the file system does not support locks. FAILED_PRECONDITION:
// another process holds the lock.
absl::StatusOr<std::unique_ptr<FileLock>> LockRunDirectory(const std::string& dir);

// Saves the job, which later describes the model. Errors as PrepareRunDirectory.
absl::Status KeepJob(const std::string& dir, const JobSpec& job);

// Saves the job file as the user wrote it. Errors as PrepareRunDirectory.
absl::Status KeepWrittenJob(const std::string& dir, const std::string& text);

// Returns the job that KeepJob() saved. NOT_FOUND: the file does not exist. DATA_LOSS: it cannot be
// parsed.
absl::StatusOr<JobSpec> ReadKeptJob(const std::string& dir);

// Deletes the servers' state and the model in `dir`, so that another run may start there. Keeps the
// job, the logs, the report and run.json. REQUIRES: the state belongs to a single run that has
// ended without training.
void RemoveState(const std::string& dir);

// Deletes `dir`, a folder made for a run that produced no result. Deletes it only if it contains
// just the job, locks and logs, and the logs are empty or the user has already seen the error
// (`told`). Otherwise keeps the whole folder.
void RemoveUnusedRun(const std::string& dir, bool told);

// Returns lines for the user with commands that resume a job from the state in `dir` and that
// export the model. `flags` are the run's flags except --job, --dir and --resume. Returns "" if
// there is no state to resume.
std::string ResumeCommand(const std::string& dir, const std::string& flags);

// Describes the model in `dir` and how to load it, for people. Returns "" if a run that began at
// `since` did not write a model.
std::string DescribeModel(const std::string& dir, absl::Time since);

}  // namespace torchps
