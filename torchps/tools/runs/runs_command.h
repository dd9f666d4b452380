#pragma once

#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "torchps/tools/base/flag_table.h"

namespace torchps {

// Implements `psctl show`: prints the report of a finished run from the run folder.

std::vector<FlagSpec> ShowFlags();

// Returns exit code 0 if shown, 5 if the run does not exist or lacks a report.
int ShowCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Implements `psctl runs`: lists the runs of a folder, or deletes old runs.

std::vector<FlagSpec> RunsFlags();

// Returns exit code 0 on success, 2 for bad flags, 5 if the folder does not exist, 1 if the user
// refused or a run could not be deleted.
int RunsCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// The runs that `psctl runs --prune` deletes. Running runs are never deleted.
struct PruneRequest {
  std::string folder;
  std::optional<absl::Duration> older_than;  // runs that ended longer ago
  std::optional<int> keep;                   // keep the newest N runs
  bool sure = false;                         // do not ask
  bool has_terminal = false;                 // a user can answer on `in`
};

// Deletes the runs after asking on `out` and reading the answer from `in`. Returns the exit code,
// as RunsCommand().
int PruneRuns(const PruneRequest& request, absl::Time now, std::istream& in, std::ostream& out,
              std::ostream& error);

}  // namespace torchps
