#include "common/process/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

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

}  // namespace torchps
