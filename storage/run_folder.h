#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace torchps {

// The folder of a run:
//
//   model.safetensors  best.safetensors                   the model (docs/storage.md)
//   job.textproto  job.written.textproto  run.json        the job and the command
//   report.json  logs/                                    the report and all output
//   state/                                                the servers' files, locks
//
// An earlier version of psctl left the files of state/ directly in the run's folder.

// The path as it is from any folder of this machine. A path that is not there stays as it is.
std::string AbsoluteIfThere(const std::string& path);

// Returns the folder of the servers' files in the run's folder `run`: run/state, or `run` itself if
// an earlier psctl, or ps_server --dir=run, left such files directly in it. Creates nothing.
std::string StateDirectory(const std::string& run);

// Returns whether a file or folder of this name belongs to the servers: a checkpoint, a push log,
// the coordinator's state. Locks and models do not count.
bool IsServerState(absl::string_view name);

// Makes an empty folder, runs/NAME-YYYYMMDD-HHMMSS below the present directory, with a number
// behind it if there is one of that name already. RESOURCE_EXHAUSTED, with the system's words: none
// can be made.
absl::StatusOr<std::string> MakeRunFolder(absl::string_view name, absl::Time now);

}  // namespace torchps
