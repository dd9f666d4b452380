#include "common/process/out_of_memory.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace torchps {
namespace {

// Formatted in advance, because formatting may need memory.
char sentence[512];
size_t sentence_bytes = 0;

struct sigaction earlier_of_segv;

void Say() {
  const ssize_t ignored = write(STDERR_FILENO, sentence, sentence_bytes);
  static_cast<void>(ignored);
}

// Runs on the thread that called abort(). If a failed malloc() caused the call, errno still holds
// ENOMEM. When the handler returns, abort() ends the process.
void OnAbort(int) {
  if (errno == ENOMEM) Say();
}

// Runs on the thread that accessed an invalid address. When the handler returns, the thread repeats
// the access, and the previous handler ends the process.
void OnSegv(int, siginfo_t* fault, void*) {
  constexpr uintptr_t kFirstPage = 4096;
  const auto where = reinterpret_cast<uintptr_t>(fault->si_addr);
  if (errno == ENOMEM && where < kFirstPage) Say();
  sigaction(SIGSEGV, &earlier_of_segv, nullptr);
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
