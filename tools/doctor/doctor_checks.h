#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace torchps {

// What `psctl doctor` has found out about one thing that a run needs.
struct Finding {
  enum class Level { kOk, kWarning, kProblem };
  Level level = Level::kOk;
  std::string subject;  // "address 127.0.0.1:7000"
  std::string text;     // what is so
  std::string advice;   // what to do; empty where nothing is
};

// Each looks at one thing on this machine, now, and changes nothing that stays. They block for as
// long as a file takes to read or an address to answer (a second at most).

// That `address` can be resolved, and who is there: nobody (a server could listen there, or has not
// been started), or something that takes connections.
Finding CheckAddress(const std::string& address);

// That a free port of this machine's loopback can be had, as `psctl run` takes them.
Finding CheckFreePort();

// That servers can write into `dir`, and how much room is there. `state_bytes`: what one checkpoint
// will take at least; 0 if unknown.
Finding CheckDirectory(const std::string& dir, int64_t state_bytes);

// That the job's data are there and whole. Reads all of it, as a worker will.
std::vector<Finding> CheckData(const JobSpec& job);

// That a process may open as many files as `connections` take.
Finding CheckOpenFiles(uint64_t limit, int64_t connections);
// The limit of this process and what it starts.
uint64_t OpenFilesLimit();

// That TCP does not use bbr within one network, where it paces what nothing limits. `in_force` is
// the kernel's congestion control; empty: unknown.
Finding CheckCongestionControl(absl::string_view in_force);
// What this machine's sockets get.
std::string CongestionControl();

// That payloads can go through memory that processes share.
Finding CheckSharedMemory();

// The certificates in `dir`, of each role that has some there: whole, of one authority, valid at
// `now` and for a while longer.
std::vector<Finding> CheckCertificates(const std::string& dir, absl::Time now);

// That the date is one that a certificate could be valid at.
Finding CheckClock(int64_t seconds_since_1970);

// One line for each, problems with what to do; the last line counts them.
std::string FindingsText(const std::vector<Finding>& findings);
bool AnyProblem(const std::vector<Finding>& findings);

}  // namespace torchps
