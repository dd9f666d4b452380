#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "tools/base/child_process.h"
#include "tools/run/buffered_output.h"
#include "tools/run_plan/fault_plan.h"
#include "tools/run_plan/hosts_file.h"
#include "tools/run_plan/restart_policy.h"
#include "tools/run_plan/run_plan.h"

namespace torchps {

// A process of a run, the present one or the next, and what is remembered of it: a server, a
// worker or one of its stages, or the evaluator. Not thread-safe. Owns the process; that it is
// there once the part was started is an invariant of ClusterRun.
struct RunPart {
  std::unique_ptr<ChildProcess> process;
  bool is_server = false;
  bool is_evaluator = false;
  int index = 0;
  int stage = -1;          // of a worker of several processes
  std::string address;     // of a server, once it has listened
  bool listening = false;  // a server, in its present life
  RestartPolicy restarts;
  absl::optional<absl::Duration> restart_at;  // it has died, and is started again then
  bool seen_dead = false;      // the process before this one was our child, and a signal ended it
  bool disk_lost = false;      // of a server: its directory is to go before its next life
  bool has_lost_disk = false;  // its files came, or come, from the server that has copies
  BufferedOutput buffered_output;
  std::ofstream log;

  explicit RunPart(RestartPolicy::Options options) : restarts(options) {}
  bool is_worker() const { return !is_server && !is_evaluator; }
  // REQUIRES: not the evaluator, which no plan knows.
  PartName name() const { return {is_server, index, stage}; }
  // It speaks for its slot, with the coordinator and in the view.
  bool leads() const { return is_worker() && stage <= 0; }
  bool ended_well() const { return !process->running() && process->exit_code() == 0; }

  // Where it runs. REQUIRES: a worker of these.
  const Place& PlaceIn(const Hosts& hosts) const;
  // Returns the server's command line for its next start. `servers` are the addresses of all
  // servers; `trains`: training has begun. REQUIRES: a server of this plan.
  ChildProcess::Options ServerIn(const RunPlan& plan, bool trains,
                                 const std::vector<std::string>& servers) const;
  // All that it says is to stand there, in a file of its own; empty: nowhere.
  void OpenLog(const std::string& directory);
  // That it failed, in words: `what` it did, and its last words.
  std::string FailureText(absl::string_view what) const;
  // The exit code of a run that its failure ends: its own where that is one of ours
  // (common/process/exit_codes.h).
  int FailureCode() const;
};

}  // namespace torchps
