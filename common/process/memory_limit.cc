#include "common/process/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

namespace torchps {
namespace {

constexpr char kContainer[] = "whose container may have";

void Lower(int64_t bytes, const char* whose, MemoryLimit& limit) {
  if (bytes < limit.bytes) limit = {bytes, whose};
}

// Applies the limits of the group at `path` in the hierarchy at `mount` and of the group's
// ancestors. Inside a container, `path` is often the host's path while `mount` already shows the
// container's group. Then `path` does not exist, and the root directory holds the limit.
void LowerToGroups(const std::string& mount, std::string path, const char* file,
                   MemoryLimit& limit) {
  while (true) {
    int64_t bytes = 0;
    // Reading "max" as a number fails, which leaves the limit unchanged.
    if (std::ifstream(mount + path + "/" + file) >> bytes) Lower(bytes, kContainer, limit);
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

// Returns true if a list such as "cpu,memory" contains the memory controller.
bool HasMemory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

MemoryLimit FindMemoryLimit(const std::string& root) {
  MemoryLimit limit;
  limit.bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  limit.whose = "whose machine has";

  // Lines look like "4:memory:/system.slice" in version 1 and "0::/system.slice" in version 2.
  std::ifstream groups(root + "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      LowerToGroups(root + "sys/fs/cgroup", path, "memory.max", limit);
    } else if (HasMemory(controllers)) {
      LowerToGroups(root + "sys/fs/cgroup/memory", path, "memory.limit_in_bytes", limit);
    }
  }

  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    constexpr rlim_t kMax = std::numeric_limits<int64_t>::max();
    Lower(static_cast<int64_t>(std::min(space.rlim_cur, kMax)),
          "whose address space is limited (ulimit -v) to", limit);
  }
  return limit;
}

}  // namespace torchps
