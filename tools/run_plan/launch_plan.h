#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "tools/base/child_process.h"
#include "tools/run_plan/hosts_file.h"

namespace torchps {

// Everything `psctl run` was asked for; its flags say the same (tools/run_plan/run_flags.h).
struct LaunchOptions {
  std::string job_file;
  std::string job_text;          // the file's contents, for machines that lack it
  std::vector<std::string> set;  // "path.to.field=value", in order
  std::string data;              // passed on if not empty
  bool download = false;         // each worker fetches MNIST first; passed on
  std::string mirrors;           // passed on if not empty
  std::string device;            // passed on if not empty; a place's own goes before
  std::string patience;          // passed on if not empty
  int threads = 0;               // of each worker; 0: its own default
  int loader_threads = 0;        // of each worker
  std::string dir;               // where servers keep what they keep; empty: nowhere
  std::string model_dir;         // of the model, passed on to the first server; empty: in `dir`
  bool disks_apart = false;      // each in a directory of its own there, as if on a disk of its own
  std::string copies_at;         // passed on to the first server if not empty
  bool durable = true;           // the job has checkpoints or a push log
  bool resume = false;           // the job of that directory goes on
  std::string certs;             // passed on if not empty
  bool insecure = false;
  bool elsewhere = false;  // parts run on other machines
  std::string server_binary;
  std::string worker_binary;
  // Words of the command that runs a program elsewhere; used for places with a host.
  std::vector<std::string> ssh = {"ssh", "-o", "BatchMode=yes"};
  // How often a process beside the workers measures what they have learnt; empty: there is none.
  std::string evaluate_every;
  // Slot -> flags of its worker that make it slower (tools/run_plan/handicaps.h).
  std::map<int, std::vector<std::string>> handicaps;

  std::vector<std::string> worker_flags;  // more of them, for every worker
  std::map<int, std::string> slow_disks;  // server -> its --slow_disk

  // Whether a server that has died finds again what it had.
  bool keeps_state() const { return !dir.empty() && durable; }
};

// The command that has ssh run `line` in a shell on `host`.
std::vector<std::string> CommandAt(const LaunchOptions& options, absl::string_view host,
                                   const std::string& line);

// Where that server keeps what it keeps; empty: nowhere.
std::string ServerDirectory(const LaunchOptions& options, int index);

// Deletes it, with all that is in it, as if its disk were lost. REQUIRES: `disks_apart`, and the
// server does not run. INTERNAL, with the system's words: it cannot be deleted.
absl::Status DeleteServerDirectory(const LaunchOptions& options, int index);

// Turns what is to run where into command lines. Pure functions.

// A server that listens on a free port (or the place's own). Through ssh it listens on every
// interface, because a host's own name often means its loopback to itself (Debian's 127.0.1.1).
ChildProcess::Options ServerProgram(const LaunchOptions& options, int index, const Place& place);

// The worker of one slot, or of a worker of several processes (Place::stages) the one with `stage`,
// else -1. Through ssh the job's text travels in the command line, so that the
// other machine needs no copy of the file. `predecessor_died`: no process of that slot is alive, so
// it need not wait for the lease of the last one.
ChildProcess::Options WorkerProgram(const LaunchOptions& options, int slot, const Place& worker,
                                    const std::vector<std::string>& server_addresses,
                                    bool predecessor_died, int stage = -1);

// The process that measures a running job on this machine, and trains nothing. It writes what it
// finds as JSON (tools/run_plan/targets.h reads it).
ChildProcess::Options EvaluatorProgram(const LaunchOptions& options,
                                       const std::vector<std::string>& server_addresses);

// Where workers find a server that says it listens on `listening` ("0.0.0.0:4711"): the place's
// host with that port. INVALID_ARGUMENT if `listening` has no port.
absl::StatusOr<std::string> ReachableAddress(const Place& place, absl::string_view listening);

}  // namespace torchps
