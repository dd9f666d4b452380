#include "server/data_plane/open_pulls.h"

#include <utility>
#include <vector>

#include "server/data_plane/patience.h"

namespace torchps {

OpenPulls::Name OpenPulls::Add(std::weak_ptr<OpenPull> pull) {
  MutexLock lock(&mutex_);
  pulls_[++last_name_] = std::move(pull);
  return last_name_;
}

void OpenPulls::Remove(Name name) {
  MutexLock lock(&mutex_);
  pulls_.erase(name);
}

void OpenPulls::Watch() {
  HostedJob* const job = server_->job();
  if (job == nullptr || !server_->send_budget().waits()) return;
  std::vector<std::weak_ptr<OpenPull>> pulls;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, pull] : pulls_) pulls.push_back(pull);
  }
  const absl::Duration patience = CallPatience(job);
  const absl::Duration now = clock_->Now();
  for (const std::weak_ptr<OpenPull>& open : pulls) {
    const std::shared_ptr<OpenPull> pull = open.lock();
    if (pull == nullptr) continue;
    const absl::optional<absl::Duration> since = pull->sending_since();
    if (since.has_value() && now - *since >= patience) pull->End();
  }
}

}  // namespace torchps
