#include "tools/run/restart_policy.h"

#include <algorithm>

#include "common/process/exit_codes.h"

namespace torchps {

absl::optional<absl::Duration> RestartPolicy::Died(absl::Duration now) {
  while (!recent_.empty() && recent_.front() <= now - options_.window) recent_.pop_front();
  if (static_cast<int>(recent_.size()) >= options_.most) return absl::nullopt;
  absl::Duration delay = options_.first_delay;
  for (size_t i = 0; i < recent_.size() && delay < options_.longest_delay; ++i) delay *= 2;
  recent_.push_back(now);
  ++restarts_;
  return std::min(delay, options_.longest_delay);
}

bool IsWorthRestarting(int exit_code, bool started_again) {
  if (exit_code > 128) return true;
  if (exit_code == static_cast<int>(ExitCode::kLostSlot)) return true;
  if (exit_code == static_cast<int>(ExitCode::kUnreachable)) return true;
  return started_again && exit_code == static_cast<int>(ExitCode::kAddressInUse);
}

}  // namespace torchps
