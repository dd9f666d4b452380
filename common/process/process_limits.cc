#include "common/process/process_limits.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <utility>

namespace torchps {

int64_t OpenFileLimit() {
  constexpr rlim_t kMax = std::numeric_limits<int64_t>::max();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMax));
}

void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

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

namespace {

// Formatted in advance, because formatting may need memory.
char sentence[512];
size_t sentence_bytes = 0;

struct sigaction earlier_of_segv;

void PrintOutOfMemory() {
  const ssize_t ignored = write(STDERR_FILENO, sentence, sentence_bytes);
  static_cast<void>(ignored);
}

// Runs on the thread that called abort(). If a failed malloc() caused the call, errno still holds
// ENOMEM. When the handler returns, abort() ends the process.
void OnAbort(int) {
  if (errno == ENOMEM) PrintOutOfMemory();
}

// Runs on the thread that accessed an invalid address. When the handler returns, the thread repeats
// the access, and the previous handler ends the process.
void OnSegv(int, siginfo_t* fault, void*) {
  constexpr uintptr_t kFirstPage = 4096;
  const auto where = reinterpret_cast<uintptr_t>(fault->si_addr);
  if (errno == ENOMEM && where < kFirstPage) PrintOutOfMemory();
  sigaction(SIGSEGV, &earlier_of_segv, nullptr);
}

[[noreturn]] void OnNewFailed() {
  errno = ENOMEM;
  std::abort();
}

}  // namespace

void ReportOutOfMemory(const char* program, const char* what) {
  const int printed =
      std::snprintf(sentence, sizeof(sentence),
                    "%s: the system refuses this process more memory; %s\n", program, what);
  sentence_bytes = std::min(static_cast<size_t>(std::max(printed, 0)), sizeof(sentence) - 1);
  struct sigaction on_abort {};
  on_abort.sa_handler = OnAbort;
  sigaction(SIGABRT, &on_abort, nullptr);
  struct sigaction on_segv {};
  on_segv.sa_sigaction = OnSegv;
  on_segv.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &on_segv, &earlier_of_segv);
  std::set_new_handler(OnNewFailed);
}

}  // namespace torchps
