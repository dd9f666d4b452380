#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace torchps {

// The folder that a run leaves behind:
//
//   model.safetensors  best.safetensors  constants.safetensors   the model (docs/checkpoint.md)
//   job.textproto  job.written.textproto  run.json               the job and the command
//   report.json  logs/                                           the report and all output
//   checkpoint-*  coordinator.*  log-*                           what the servers keep
//   *.lock                                                       whose it is: a server's, a run's

// The path as it is from any folder of this machine. A path that is not there stays as it is.
std::string AbsoluteIfThere(const std::string& path);

// Makes an empty folder, runs/NAME-YYYYMMDD-HHMMSS below the present directory, with a number
// behind it if there is one of that name already. RESOURCE_EXHAUSTED, with the system's words: none
// can be made.
absl::StatusOr<std::string> MakeRunFolder(absl::string_view name, absl::Time now);

}  // namespace torchps
