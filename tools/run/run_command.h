#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/base/flag_table.h"
#include "tools/run/cluster_run.h"

namespace torchps {

// `psctl run`: a whole job, from its file to its report.

std::vector<FlagSpec> RunFlags();

// The flags that set the job field with this name, as "--lr" for "learning_rate" or
// "--set=training.clip_norm=VALUE"; empty if the job has no such field.
std::string RunFlagFor(absl::string_view field);

// Reads, completes and checks everything before anything is started. `program_directory` is where
// psctl lies: its companions are looked for there. Errors are one sentence that names the flag, the
// job's field or the file.
absl::StatusOr<ClusterRun::Options> PlanRun(const FlagValues& flags,
                                            const std::string& program_directory);

// Runs it, in a folder of its own where none is named, which goes again if the run came to nothing
// (RemoveUnusedRun()). `on_report` gets the report, if there is one. Returns the exit code.
int RunInDirectory(ClusterRun::Options options, std::ostream& out, std::ostream& error,
                   const Clock& clock, int interrupt_fd, ClusterRun::OnReport on_report = nullptr);

// Plans and runs; returns the exit code. Complaints go to `error`, all else to `out`.
int RunCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
