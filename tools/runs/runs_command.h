#pragma once

#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/base/flag_table.h"

namespace torchps {

// `psctl runs`: lists the runs of a folder, or deletes old ones.

std::vector<FlagSpec> RunsFlags();

// Exit code 0: listed or deleted, or there was nothing to delete. 2: a flag is wrong. 5: there is
// no such folder. 1: the user said no, or a run could not be deleted.
int RunsCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

// Which runs `psctl runs --prune` deletes. A running one never is.
struct PruneRequest {
  std::string folder;
  std::optional<absl::Duration> older_than;  // runs whose end is longer ago
  std::optional<int> keep;                   // all runs but the newest N
  bool sure = false;                         // does not ask
  bool has_terminal = false;                 // a person can answer on `in`
};

// Deletes the runs and returns the exit code, as RunsCommand() does. Asks on `out` first and reads
// the answer from `in`.
int PruneRuns(const PruneRequest& request, absl::Time now, std::istream& in, std::ostream& out,
              std::ostream& error);

}  // namespace torchps
