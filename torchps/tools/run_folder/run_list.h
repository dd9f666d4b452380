#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/run_folder/run_record.h"

namespace torchps {

// Finds the run folders on this machine: folders in runs/ that contain a run.json. Stateless;
// thread-safe.

// Folder where `psctl run` creates run folders, relative to the working directory.
inline constexpr char kRunsFolder[] = "runs";

struct ListedRun {
  std::string dir;   // "runs/digits-20261128-101500"
  std::string name;  // the last component of `dir`
  RunRecord record;
};

// Returns the runs in `folder`, newest first. Skips links and folders without a readable run.json.
// NOT_FOUND: `folder` does not exist.
absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& folder);

// Returns the run that `name` refers to: a run folder, or the name of one in runs/. NOT_FOUND: the
// message lists the newest runs.
absl::StatusOr<ListedRun> FindRun(const std::string& name);

// Returns the newest run in runs/. NOT_FOUND: the folder contains no run.
absl::StatusOr<ListedRun> NewestRun();

// Returns true if a process holds a lock in the run's folder.
bool IsRunning(const std::string& dir);

// Returns the run named `name`, or the only running one in runs/ if `name` is empty. The run's
// record contains the server addresses. UNAVAILABLE: the servers are not running. INVALID_ARGUMENT:
// several runs are running; the message lists them.
absl::StatusOr<ListedRun> FindRunningRun(const std::string& name);

// Returns the disk space that the folder's files use, in bytes.
int64_t BytesOnDisk(const std::string& dir);

// Returns --run, for the commands that connect to a cluster.
FlagSpec RunFlag();

}  // namespace torchps
