#include "torchps/common/process/failpoint.h"

#ifdef TORCHPS_FAILPOINTS

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace torchps {
namespace {

// The request in TORCHPS_FAILPOINT, read once.
struct Wish {
  Wish() {
    const char* const text = std::getenv("TORCHPS_FAILPOINT");
    if (text == nullptr) return;
    const char* const action = std::strstr(text, ":kill:");
    if (action == nullptr) {
      std::fprintf(stderr, "TORCHPS_FAILPOINT is '%s'; expected NAME:kill:N\n", text);
      std::_Exit(2);
    }
    name.assign(text, action);
    left = std::atol(action + 6);
  }
  std::string name;
  std::atomic<long> left{0};
};

}  // namespace

void ReachFailpoint(Failpoint point) {
  static Wish* const wish = new Wish();
  if (wish->name.empty()) return;
  for (const FailpointRow& row : kFailpoints) {
    if (row.point != point || wish->name != row.name) continue;
    if (--wish->left != 0) return;
    std::fprintf(stderr, "failpoint %s\n", row.name);
    std::fflush(stderr);
    kill(getpid(), SIGKILL);
  }
}

}  // namespace torchps

#else

namespace torchps {
void ReachFailpoint(Failpoint) {}
}  // namespace torchps

#endif
