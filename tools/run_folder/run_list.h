#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/base/flag_table.h"
#include "tools/run_folder/run_record.h"

namespace torchps {

// Finds the run folders of this machine: the folders below runs/ that hold a run.json. Free
// functions without state; thread-safe.

// Where `psctl run` makes its folders, below the working directory.
inline constexpr char kRunsFolder[] = "runs";

struct ListedRun {
  std::string dir;   // "runs/digits-20261128-101500"
  std::string name;  // the last part of `dir`
  RunRecord record;
};

// Returns the runs in `folder`, the newest first. Skips links and folders without a readable
// run.json. NOT_FOUND: there is no such folder.
absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& folder);

// Returns the run that `name` names: a run's folder, or its name below runs/. NOT_FOUND names the
// newest runs there.
absl::StatusOr<ListedRun> FindRun(const std::string& name);

// Returns the newest run below runs/. NOT_FOUND: there is none.
absl::StatusOr<ListedRun> NewestRun();

// Whether a process of the run holds a lock in its folder.
bool IsRunning(const std::string& dir);

// Returns the run named `name`, or the only running one below runs/ if `name` is empty. Its record
// has the addresses of its servers. UNAVAILABLE: no such run has servers now.
// INVALID_ARGUMENT lists the running ones if there are several.
absl::StatusOr<ListedRun> FindRunningRun(const std::string& name);

// Returns the bytes that the folder's files occupy on the disk.
int64_t BytesOnDisk(const std::string& dir);

// --run, for each command that connects to a cluster.
FlagSpec RunFlag();

}  // namespace torchps
