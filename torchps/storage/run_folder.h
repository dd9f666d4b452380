#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace torchps {

// Layout of a run's folder:
//
//   model.safetensors  best.safetensors                   the model (docs/storage.md)
//   job.textproto  job.written.textproto  run.json        the job and the command
//   report.json  logs/                                    the report and all output
//   state/                                                the servers' files, locks
//
// Earlier versions of psctl stored the files of state/ directly in the run's folder.

// Returns the absolute path of an existing file or folder. Returns other paths unchanged.
std::string AbsoluteIfThere(const std::string& path);

// Returns the folder with the servers' files of run `run`: run/state, or `run` itself if an earlier
// psctl or ps_server --dir=run stored such files there. Does not create the folder.
std::string StateDirectory(const std::string& run);

// Returns true if a file or folder of this name belongs to the servers' state: a checkpoint, a push
// log, the coordinator's state, a server's addresses, or copies of a neighbour's files. Locks and
// models do not belong to it.
bool IsServerState(absl::string_view name);

// Creates an empty folder runs/NAME-YYYYMMDD-HHMMSS in the current directory, with a number
// appended if the name exists already. Returns RESOURCE_EXHAUSTED, with the system's message, on
// failure.
absl::StatusOr<std::string> MakeRunFolder(absl::string_view name, absl::Time now);

}  // namespace torchps
