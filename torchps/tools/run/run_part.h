#pragma once

#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/run_plan/fault_plan.h"
#include "torchps/tools/run_plan/hosts_file.h"
#include "torchps/tools/run_plan/launch_plan.h"
#include "torchps/tools/run_plan/plan_run.h"

namespace torchps {

// Holds the error output of a torchps process. Lines wait briefly before they are shown, because
// the lines of a failing process belong to the failure message. Thread-compatible.
class BufferedOutput {
 public:
  // The time for which a line waits. Long enough for a process to exit after the last line
  // (unloading libtorch is slow), short enough for the user.
  static constexpr absl::Duration kHold = absl::Seconds(1);

  // Adds a line, without the program's name; the caller adds the name when showing the line.
  void Add(absl::Duration now, absl::string_view line);

  // Returns true if lines are waiting.
  bool waiting() const { return !held_.empty(); }

  // Removes and returns the lines that arrived at `until` or before, oldest first.
  std::vector<std::string> Take(absl::Duration until);

  // Returns the waiting lines for the failure message, or the last line again if no line waits.
  std::vector<std::string> LastWords() const;

  // Discards the lines, for a restarted process.
  void Clear();

 private:
  std::deque<std::pair<absl::Duration, std::string>> held_;
  std::string last_;
};

// A part of a run, across restarts: a server, a worker or one of the worker's stages, or the
// evaluator. Not thread-safe. Owns the process; ClusterRun ensures that `process` is set once the
// part has been started.
struct RunPart {
  std::unique_ptr<ChildProcess> process;
  bool is_server = false;
  bool is_evaluator = false;
  int index = 0;
  int stage = -1;          // of a multi-process worker
  std::string address;     // server: address, set at the first start
  bool listening = false;  // server: the current process listens
  RestartPolicy restarts;
  std::optional<absl::Duration> restart_at;  // time of the scheduled restart
  bool seen_dead = false;                    // the previous local process ended by a signal
  bool disk_lost = false;                    // server: delete the directory before the restart
  bool has_lost_disk = false;                // server: restores the files from a server with copies
  BufferedOutput buffered_output;
  std::ofstream log;

  explicit RunPart(RestartPolicy::Options options) : restarts(options) {}
  bool is_worker() const { return !is_server && !is_evaluator; }
  // REQUIRES: not the evaluator.
  PartName name() const { return {is_server, index, stage}; }
  // Returns true if this process represents the slot to the coordinator and in the view.
  bool leads() const { return is_worker() && stage <= 0; }
  bool ended_well() const { return !process->running() && process->exit_code() == 0; }

  // Returns the machine of this part. REQUIRES: the part is a worker in `hosts`.
  const Place& PlaceIn(const Hosts& hosts) const;
  // Returns the server's command line for the next start. `servers` are the addresses of the
  // servers. `trains` is true if training has begun. REQUIRES: the part is a server of this plan.
  ChildProcess::Options ServerIn(const RunPlan& plan, bool trains,
                                 const std::vector<std::string>& servers) const;
  // Opens a log file for the part's output in `directory`; does nothing if it is empty.
  void OpenLog(const std::string& directory);
  // Returns the failure message: `what` happened, then the last output.
  std::string FailureText(absl::string_view what) const;
  // Returns the exit code for a run that this failure ends: the part's exit code if it is in
  // torchps/common/process/command_line.h, otherwise kFailed.
  int FailureCode() const;
};

}  // namespace torchps
