#include "tools/report/status_command.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/process/command_line.h"
#include "tools/base/child_process.h"
#include "tools/base/interrupt.h"
#include "tools/report/status_text.h"

namespace torchps {
namespace {

constexpr absl::Duration kAnswerTimeout = absl::Seconds(3);
constexpr absl::Duration kRefreshInterval = absl::Seconds(1);

// Shows the status repeatedly until interrupted. On a terminal, each status replaces the previous
// one.
int WatchStatus(ClusterClient& cluster, std::ostream& out, int interrupt_fd) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const SteadyClock clock;
  std::optional<ClusterView> previous;
  for (;;) {
    ClusterView view = ReadCluster(cluster, kAnswerTimeout, clock.Now());
    const std::string text = StatusText(view, previous.has_value() ? &*previous : nullptr);
    // Clears the screen only when the new text is ready, to avoid flicker.
    out << (terminal ? "\x1b[H\x1b[J" : "") << text << (terminal ? "" : "\n") << std::flush;
    previous.emplace(std::move(view));
    if (WaitForActivity({}, interrupt_fd, kRefreshInterval) || !out.good()) {
      return static_cast<int>(ExitCode::kOk);
    }
  }
}

}  // namespace

std::vector<FlagSpec> StatusFlags() {
  std::vector<FlagSpec> flags = ClusterFlags();
  flags.push_back({"watch", "", "Repeats every second until Ctrl-C."});
  return flags;
}

int ShowStatus(ClusterClient& cluster, std::ostream& out) {
  const SteadyClock clock;
  const ClusterView view = ReadCluster(cluster, kAnswerTimeout, clock.Now());
  out << StatusText(view, nullptr) << std::flush;
  if (!NoneReachable(view)) return static_cast<int>(ExitCode::kOk);
  const bool refused = ExitCodeFor(view.job.status()) == ExitCode::kRefused;
  return static_cast<int>(refused ? ExitCode::kRefused : ExitCode::kUnreachable);
}

int StatusCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  // Created first, so that the threads of gRPC inherit the blocked signals.
  std::optional<Interrupt> interrupt;
  if (flags.Has("watch")) interrupt.emplace();
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster = ConnectByFlags(flags, "status");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  if (!interrupt.has_value()) return ShowStatus(**cluster, out);
  return WatchStatus(**cluster, out, interrupt->fd());
}

}  // namespace torchps
