#include "tools/run_plan/restart_policy.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/process/command_line.h"
#include "tools/base/format.h"

namespace torchps {

std::optional<absl::Duration> RestartPolicy::Died(absl::Duration now) {
  while (!recent_.empty() && recent_.front() <= now - options_.window) recent_.pop_front();
  if (static_cast<int>(recent_.size()) >= options_.most) return std::nullopt;
  absl::Duration delay = options_.first_delay;
  for (size_t i = 0; i < recent_.size() && delay < options_.longest_delay; ++i) delay *= 2;
  recent_.push_back(now);
  ++restarts_;
  return std::min(delay, options_.longest_delay);
}

std::string StaysDownText(const RestartPolicy::Options& options) {
  if (options.most == 0) return "";
  return absl::StrCat(", as it did ", Count(options.most, "time"), " within ",
                      absl::FormatDuration(options.window), " before, so it is not restarted");
}

bool IsWorthRestarting(int exit_code, bool started_again) {
  if (exit_code > 128) return true;
  if (exit_code == static_cast<int>(ExitCode::kLostSlot)) return true;
  if (exit_code == static_cast<int>(ExitCode::kUnreachable)) return true;
  return started_again && exit_code == static_cast<int>(ExitCode::kAddressInUse);
}

}  // namespace torchps
