#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/run_plan/hosts_file.h"

namespace torchps {

// Decides when and how often a part of a cluster is restarted after it died: at most `most` times
// within `window`, doubling the delay each time. The caller supplies the time. Not thread-safe.
class RestartPolicy {
 public:
  struct Options {
    int most = 5;  // restarts within `window`; 0: do not restart
    absl::Duration window = absl::Minutes(10);
    // Short, because a process killed by a signal usually restarts successfully, and the other
    // parts wait for it.
    absl::Duration first_delay = absl::Milliseconds(100);
    absl::Duration longest_delay = absl::Seconds(5);
  };

  explicit RestartPolicy(Options options) : options_(options) {}

  // Records a death at `now`. Returns the delay before the restart, or nullopt if the part must not
  // restart again.
  std::optional<absl::Duration> Died(absl::Duration now);

  // Total number of restarts.
  int restarts() const { return restarts_; }

 private:
  Options options_;
  std::deque<absl::Duration> recent_;  // restarted deaths within the window
  int restarts_ = 0;
};

// Returns the explanation for a part that is not restarted again, or "" if the policy does not
// allow restarts.
std::string StaysDownText(const RestartPolicy::Options& options);

// Returns true if a restart may help after `exit_code` (128 + n for signal n; 255 if ssh failed):
// after a signal, a lost lease or an unreachable server. For a part that `started_again`, also if
// the old address was still in use. A wrong flag, job or file would fail again.
bool IsWorthRestarting(int exit_code, bool started_again);

// The settings of `psctl run`; torchps/tools/run_plan/run_flags.h documents the flags.
struct LaunchOptions {
  std::string job_file;
  std::string job_text;          // contents of the file, for machines without it
  std::vector<std::string> set;  // "path.to.field=value", in order
  std::string data;              // passed on unless empty
  bool download = false;         // each worker downloads MNIST first; passed on
  std::string mirrors;           // passed on unless empty
  std::string device;            // passed on unless empty; a place's device overrides it
  std::string patience;          // passed on unless empty
  int threads = 0;               // per worker; 0: the worker's default
  int loader_threads = 0;        // per worker
  std::string dir;               // directory of the servers' state; empty: do not save state
  std::string model_dir;         // directory of the model, passed on to server 0; empty: `dir`
  bool disks_apart = false;      // each server uses a subdirectory, like a separate disk
  std::string copies_at;         // passed on to server 0 unless empty
  bool durable = true;           // the job takes checkpoints or uses a push log
  bool resume = false;           // resume the job in `dir`
  std::string certs;             // passed on unless empty
  bool insecure = false;
  bool elsewhere = false;  // some parts run on other machines
  std::string server_binary;
  std::string worker_binary;
  // Command that runs a program on another machine; used for places with a host.
  std::vector<std::string> ssh = {"ssh", "-o", "BatchMode=yes"};
  // Interval at which an evaluator process measures the model; empty: do not start one.
  std::string evaluate_every;
  std::vector<std::string> worker_flags;    // additional flags for each worker
  std::map<int, std::string> slow_workers;  // slot -> its --slow
  std::map<int, std::string> slow_disks;    // server -> its --slow_disk

  // True if a restarted server can restore the state.
  bool keeps_state() const { return !dir.empty() && durable; }
};

// Returns the ssh command that runs `line` in a shell on `host`.
std::vector<std::string> CommandAt(const LaunchOptions& options, absl::string_view host,
                                   const std::string& line);

// Returns the state directory of a server; "" if servers do not save state.
std::string ServerDirectory(const LaunchOptions& options, int index);

// Deletes the server's state directory, as if the disk had failed. REQUIRES: `disks_apart` is true,
// and the server does not run. INTERNAL: cannot delete it; the message contains the system's error.
absl::Status DeleteServerDirectory(const LaunchOptions& options, int index);

// Functions that build command lines. Pure functions.

// Returns the command of a server that listens on the place's port, or any free port. A server
// started through ssh listens on all interfaces, because a host name often resolves to loopback on
// that host (Debian uses 127.0.1.1).
ChildProcess::Options ServerProgram(const LaunchOptions& options, int index, const Place& place);

// Returns the command of a worker, or of process `stage` of a multi-process worker (Place::stages).
// `stage` is -1 for all other workers. Through ssh, the command line contains the job text, so the
// other machine does not need the file. If `predecessor_died`, the slot's previous process is gone,
// and the worker does not wait for that process's lease.
ChildProcess::Options WorkerProgram(const LaunchOptions& options, int slot, const Place& worker,
                                    const std::vector<std::string>& server_addresses,
                                    bool predecessor_died, int stage = -1);

// Returns the command of the evaluator, a process on this machine that measures a running job
// without training. It writes JSON lines (see torchps/tools/run_plan/targets.h).
ChildProcess::Options EvaluatorProgram(const LaunchOptions& options,
                                       const std::vector<std::string>& server_addresses);

// Returns the address where workers reach a server that listens on `listening` ("0.0.0.0:4711"):
// the place's host with that port. INVALID_ARGUMENT: `listening` does not contain a port.
absl::StatusOr<std::string> ReachableAddress(const Place& place, absl::string_view listening);

}  // namespace torchps
