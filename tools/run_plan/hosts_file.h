#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/process/file_descriptor.h"

namespace torchps {

// Where a part of the cluster runs.
struct Place {
  std::string host;  // a name or address that ssh and the workers can reach; empty: this machine
  int port = 0;      // servers: the port to listen on; 0: a free one
  // Workers: where this one computes, as ps_worker's --device says it; empty: as all others.
  std::string device = {};
  // Workers whose model several processes hold: where each of them runs and listens, in the order
  // of their stages; `host` is the first one's. Empty: the worker is one process.
  std::vector<Place> stages = {};
  // Workers: where `device` leaves it to "cuda", which of its machine's processes this one is; it
  // takes the GPU with that number, modulo those that are there. -1: by its slot.
  int gpu_number = -1;
};

// Which machine runs what, in the order of the file: server k is servers[k], slot i is workers[i].
struct Hosts {
  std::vector<Place> servers;
  std::vector<Place> workers;
  // Keeps the ports that SplitIntoStages() has chosen from other processes, as long as a copy
  // lives.
  std::shared_ptr<const std::vector<FileDescriptor>> held_ports = nullptr;
};

// Reads a hosts file: one part per line, `#` begins a comment. Words stand apart by blanks or tabs,
// lines end as on any system, and a byte order mark before the first counts for nothing.
//   server HOST[:PORT]
//   worker HOST [slots=N]     N workers on that machine, default 1
//   worker HOST gpus=0,1      one worker there, with a replica of the model on each of these GPUs
//   worker HOST:PORT,HOST:PORT,... [gpus=0,1]   one worker of several processes: the k-th holds
//                             stage k of the model and listens there. Those of a machine take these
//                             GPUs of it in turn
// INVALID_ARGUMENT names the line and what is expected there: an unknown word, no host, a port or
// number out of range, the same server address twice, no server or no worker in all, a loopback
// server that another machine's worker could not reach.
absl::StatusOr<Hosts> ParseHosts(absl::string_view text);

// ParseHosts of a file's contents; errors begin with its path. NOT_FOUND if it cannot be read.
absl::StatusOr<Hosts> ReadHostsFile(const std::string& path);

// Spreads `gpus` GPUs of each worker's machine over workers of `per_worker` each, in place of its
// one worker, machine after machine, so that the slots of a machine follow each other. Where a
// worker has one GPU it is the one of its slot, "cuda". INVALID_ARGUMENT: `gpus` cannot be divided
// so, a machine has more than one worker or names its GPUs already, a worker is several processes,
// or there would be more workers than are possible.
absl::Status SpreadGpus(int gpus, int per_worker, Hosts* hosts);

// Numbers the processes of each machine that name no GPU of it themselves, from 0 in the order of
// the file, and leaves out the GPUs that others of its lines name. Slots and stages alone do not
// tell those of a machine apart where it has more of one worker than of the next.
void NumberProcesses(Hosts* hosts);

// Makes each worker one of `stages` processes on this machine, on free ports of the loopback, which
// `hosts` holds from now on.
// UNAVAILABLE: there are no ports.
absl::Status SplitIntoStages(int stages, Hosts* hosts);

// Where the processes of a worker listen, as ps_worker's --replica wants it.
std::vector<std::string> StageAddresses(const Place& worker);

// Whether `host` names the machine it is used on: localhost, 127.x.y.z, ::1.
bool IsLoopback(absl::string_view host);

}  // namespace torchps
