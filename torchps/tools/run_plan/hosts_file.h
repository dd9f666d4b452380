#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {

// GPUs per machine; equal to the limit on a worker's devices (torchps/worker/device.h).
inline constexpr int kMaxGpus = 64;

// Location of a part of the cluster.
struct Place {
  std::string host;  // name or address that ssh and the workers can reach; empty: this machine
  int port = 0;      // servers: port to listen on; 0: any free port
  // Workers: the device, as for ps_worker's --device; empty: the default.
  std::string device = {};
  // Multi-process workers: the location and port of each process, by stage. `host` is that of stage
  // 0. Empty for a single process.
  std::vector<Place> stages = {};
  // Workers with device "cuda": the process number on the machine, which selects the GPU modulo the
  // number of GPUs. -1: the slot selects the GPU.
  int gpu_number = -1;
};

// Locations of the parts, in file order: server k is servers[k], slot i is workers[i].
struct Hosts {
  std::vector<Place> servers;
  std::vector<Place> workers;
  // Reserves the ports chosen by SplitIntoStages() while a copy exists.
  std::shared_ptr<const std::vector<FileDescriptor>> held_ports = nullptr;
};

// Parses a hosts file: one part per line; `#` begins a comment. Words are separated by blanks or
// tabs. Accepts any line endings and ignores a byte order mark.
//   server HOST[:PORT]
//   worker HOST [slots=N]     N workers on that machine, default 1
//   worker HOST gpus=0,1      one worker there, with a replica of the model on each of these GPUs
//   worker HOST:PORT,HOST:PORT,... [gpus=0,1]   one worker of several processes: process k holds
//                             stage k of the model and listens on that port. The processes of a
//                             machine use these GPUs in turn
// INVALID_ARGUMENT: unknown word, missing host, port or number out of range, duplicate server
// address, missing servers or workers, or a loopback server that remote workers cannot reach. The
// message contains the line number and the expected form.
absl::StatusOr<Hosts> ParseHosts(absl::string_view text);

// Parses the contents of a file; errors begin with the path. NOT_FOUND: the file cannot be read.
absl::StatusOr<Hosts> ReadHostsFile(const std::string& path);

// Replaces each machine's worker with workers of `per_worker` GPUs each, so that a machine uses
// `gpus` GPUs. The slots of a machine are consecutive. If a worker uses one GPU, the device is
// "cuda" and the slot selects the GPU. INVALID_ARGUMENT: `gpus` is not divisible, a machine runs
// more than one worker or names GPUs, a worker uses several processes, or there would be too many
// workers.
absl::Status SpreadGpus(int gpus, int per_worker, Hosts* hosts);

// Sets Place::gpu_number of the processes that do not name a GPU: on each machine from 0 in file
// order, leaving out GPUs that other lines of the machine name. Slot and stage cannot select the
// GPU if a machine runs more processes of one worker than of another.
void NumberProcesses(Hosts* hosts);

// Splits each worker into `stages` processes on this machine, on free loopback ports, and reserves
// the ports in `hosts`. UNAVAILABLE: no free ports.
absl::Status SplitIntoStages(int stages, Hosts* hosts);

// Returns the addresses of a worker's processes, as for ps_worker's --replica.
std::vector<std::string> StageAddresses(const Place& worker);

// Returns true if `host` is a loopback name: localhost, 127.x.y.z, ::1.
bool IsLoopback(absl::string_view host);

}  // namespace torchps
