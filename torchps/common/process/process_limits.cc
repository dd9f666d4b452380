#include "torchps/common/process/process_limits.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <thread>
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

// Lowers `limit` to the limits of the control group at `path`, in the hierarchy at `mount`, and of
// the group's ancestors. Inside a container, `path` is often the host's path while `mount` already
// shows the container's group. Then `path` does not exist, and the root directory holds the limit.
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

// The line that PrintOutOfMemory() writes. ReportOutOfMemory() formats it in advance, because
// formatting may need memory.
char sentence[512];
size_t sentence_bytes = 0;

struct sigaction earlier_of_segv;  // the handler before ReportOutOfMemory()

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

namespace {

constexpr char kGroups[] = "/sys/fs/cgroup";

int CoresOfAffinity() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Returns the first number in a file, or 0 if the file is missing or does not start with a number.
double NumberIn(const std::string& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : 0;
}

// Returns the CPU quota of a single control group in cores, or 0 if unlimited.
double GetQuota(const std::string& group) {
  std::ifstream file(group + "/cpu.max");  // "200000 100000", or "max 100000"
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) return quota / period;
  quota = NumberIn(group + "/cpu.cfs_quota_us");
  period = NumberIn(group + "/cpu.cfs_period_us");
  return quota > 0 && period > 0 ? quota / period : 0;
}

// Returns the smallest quota of this process's control group and the group's ancestors, or 0 if
// unlimited.
double Quota() {
  double least = 0;
  const auto read_group = [&least](const std::string& group) {
    const double quota = GetQuota(group);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  };
  std::ifstream file("/proc/self/cgroup");  // lines like "0::/path" or "4:cpu,cpuacct:/path"
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers.find("cpu") == std::string::npos) continue;
    const std::string root =
        controllers.empty() ? std::string(kGroups) : std::string(kGroups) + "/" + controllers;
    std::string path = line.substr(second + 1);
    for (; path.size() > 1; path.resize(path.rfind('/'))) read_group(root + path);
    read_group(root);
  }
  return least;
}

}  // namespace

int AvailableCores() {
  int cores = CoresOfAffinity();
  const double quota = Quota();
  if (quota > 0) cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  return std::max(cores, 1);
}

bool SpinFor(absl::Duration time, absl::FunctionRef<bool()> has_come) {
  static const bool may_spin = std::thread::hardware_concurrency() > 1;
  if (!may_spin || time <= absl::ZeroDuration()) return false;
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
  do {
    if (has_come()) return true;
    sched_yield();
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace torchps
