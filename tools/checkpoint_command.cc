#include "tools/checkpoint_command.h"

#include <string>

#include "common/process/exit_codes.h"
#include "tools/base/format.h"

namespace torchps {
namespace {

// Generous: a server writes a few hundred MB per second.
constexpr absl::Duration kCheckpointTimeout = absl::Minutes(20);

}  // namespace

std::vector<FlagSpec> CheckpointFlags() { return ClusterFlags(); }

int TakeCheckpoint(ClusterClient& cluster, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<CheckpointStatus> taken = cluster.TakeCheckpoint(kCheckpointTimeout);
  if (!taken.ok()) {
    error << "psctl: no checkpoint was taken: " << taken.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(taken.status()));
  }
  out << "checkpoint " << taken->number() << ": "
      << FormatBytes(static_cast<double>(taken->bytes())) << " in "
      << FormatSeconds(taken->seconds()) << ", no block was held for more than "
      << FormatSeconds(taken->longest_pause_seconds()) << "\n"
      << taken->directory() << std::endl;
  return static_cast<int>(ExitCode::kOk);
}

int CheckpointCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster =
      ConnectByFlags(flags, "checkpoint");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  return TakeCheckpoint(**cluster, out, error);
}

}  // namespace torchps
