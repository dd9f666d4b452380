#include "common/process/cores.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

namespace torchps {
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
  std::ifstream file("/proc/self/cgroup");  // lines "0::/path", "4:cpu,cpuacct:/path"
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
