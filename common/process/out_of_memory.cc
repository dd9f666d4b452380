#include "common/process/out_of_memory.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace torchps {
namespace {

// Made before there is no memory.
char sentence[512];
size_t sentence_bytes = 0;

// On the thread that has called abort(): whoever does so because malloc() gave nothing has its
// error in errno still. When this returns, abort() ends the process.
void OnAbort(int) {
  if (errno != ENOMEM) return;
  const ssize_t ignored = write(STDERR_FILENO, sentence, sentence_bytes);
  static_cast<void>(ignored);
}

[[noreturn]] void OnNewFailed() {
  errno = ENOMEM;
  std::abort();
}

}  // namespace

void SayWhenOutOfMemory(const char* program, const char* what) {
  const int printed =
      std::snprintf(sentence, sizeof(sentence),
                    "%s: the system refuses this process more memory; %s\n", program, what);
  sentence_bytes = std::min(static_cast<size_t>(std::max(printed, 0)), sizeof(sentence) - 1);
  struct sigaction action {};
  action.sa_handler = OnAbort;
  sigaction(SIGABRT, &action, nullptr);
  std::set_new_handler(OnNewFailed);
}

}  // namespace torchps
