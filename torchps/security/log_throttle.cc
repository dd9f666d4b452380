#include "torchps/security/log_throttle.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(10);
constexpr size_t kLinesPerPeriod = 10;

}  // namespace

LogThrottle::LogThrottle(LogLine log) : log_(std::move(log)) {}

void LogThrottle::Log(const std::string& line, absl::Time now) {
  MutexLock lock(&mutex_);
  if (now - since_ >= kPeriod) {
    for (const auto& [said, times] : said_) {
      if (times == 1) continue;
      log_(absl::StrCat("(", times == 2 ? "once more" : absl::StrCat(times - 1, " more times"),
                        ": ", said, ")"));
    }
    said_.clear();
    since_ = now;
  }
  const auto found = said_.find(line);
  if (found != said_.end()) {
    ++found->second;
    return;
  }
  if (said_.size() >= kLinesPerPeriod) return;
  said_.emplace(line, 1);
  log_(line);
}

}  // namespace torchps
