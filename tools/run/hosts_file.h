#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Where a part of the cluster runs.
struct Place {
  std::string host;  // a name or address that ssh and the workers can reach; empty: this machine
  int port = 0;      // servers: the port to listen on; 0: a free one
};

// Which machine runs what, in the order of the file: server k is servers[k], slot i is workers[i].
struct Hosts {
  std::vector<Place> servers;
  std::vector<Place> workers;
};

// Reads a hosts file: one part per line, `#` begins a comment.
//   server HOST[:PORT]
//   worker HOST [slots=N]     N workers on that machine, default 1
// INVALID_ARGUMENT names the line and what is expected there: an unknown word, no host, a port or
// number out of range, the same server address twice, no server or no worker in all, a loopback
// server that another machine's worker could not reach.
absl::StatusOr<Hosts> ParseHosts(absl::string_view text);

// ParseHosts of a file's contents; errors begin with its path. NOT_FOUND if it cannot be read.
absl::StatusOr<Hosts> ReadHostsFile(const std::string& path);

// `n` workers on each worker's machine in place of one, machine after machine, so that the slots of
// a machine follow each other. INVALID_ARGUMENT: a machine has more than one worker already, or
// there would be more workers than are possible.
absl::Status MultiplyWorkers(int n, Hosts* hosts);

// Whether `host` names the machine it is used on: localhost, 127.x.y.z, ::1.
bool IsLoopback(absl::string_view host);

}  // namespace torchps
