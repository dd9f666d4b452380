#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// The result of one `psctl doctor` check.
struct Finding {
  enum class Level { kOk, kWarning, kProblem };
  Level level = Level::kOk;
  std::string subject;  // "address 127.0.0.1:7000"
  std::string text;     // the result
  std::string advice;   // how to fix a problem; empty if not needed
};

// Each function in this file checks one requirement on this machine and leaves the machine
// unchanged. It blocks while it reads a file or waits up to a second for an address.

// Checks that `address` resolves, and reports if it accepts connections. A free address is fine: a
// server could listen there, or is not started yet.
Finding CheckAddress(const std::string& address);

// Checks that the loopback has a free port, as `psctl run` needs.
Finding CheckFreePort();

// Checks that servers can write to `dir`, and reports the free space.
Finding CheckDirectory(const std::string& dir);

// Checks that the job's data exist and are intact. Reads the whole data set, as a worker does.
std::vector<Finding> CheckData(const JobSpec& job);

// Checks that a process may open enough files for `connections`.
Finding CheckOpenFiles(uint64_t limit, int64_t connections);
// Returns the open-file limit of this process and its children.
uint64_t OpenFilesLimit();

// Checks that TCP does not use bbr, which slows transfers within one network by pacing. `in_force`
// is the kernel's congestion control; empty if unknown.
Finding CheckCongestionControl(absl::string_view in_force);
// Returns the congestion control of new sockets on this machine.
std::string CongestionControl();

// Checks that processes can exchange payloads through shared memory.
Finding CheckSharedMemory();

// Checks the certificates in `dir` for each role found: complete, signed by the same authority,
// valid at `now` and not about to expire.
std::vector<Finding> CheckCertificates(const std::string& dir, absl::Time now);

// Checks that the date is plausible for certificates.
Finding CheckClock(int64_t seconds_since_1970);

// Returns one line per finding, with advice for problems. The last line counts the findings.
std::string FindingsText(const std::vector<Finding>& findings);
bool AnyProblem(const std::vector<Finding>& findings);

}  // namespace torchps
