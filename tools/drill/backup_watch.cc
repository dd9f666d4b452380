#include "tools/drill/backup_watch.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace torchps {

BackupWatch::BackupWatch(int servers, bool has_log, Connect connect)
    : has_log_(has_log), connect_(std::move(connect)), addresses_(static_cast<size_t>(servers)) {}

void BackupWatch::OnDeath(int server) {
  addresses_[static_cast<size_t>(server)].clear();
  client_ = nullptr;
  // Restarted servers count from zero.
  before_.reset();
}

void BackupWatch::OnLoss(int server) {
  OnDeath(server);
  has_lost_ = true;
}

void BackupWatch::OnReturn(int server, const std::string& address) {
  addresses_[static_cast<size_t>(server)] = address;
}

bool BackupWatch::AreWhole(absl::Duration patience) {
  if (!has_lost_) return true;
  absl::optional<std::vector<uint64_t>> now = Look(patience);
  if (!now.has_value()) return false;
  if (!before_.has_value()) {
    before_ = std::move(now);
    return false;
  }
  for (size_t i = 0; i < now->size(); ++i) {
    if ((*now)[i] <= (*before_)[i]) return false;
  }
  has_lost_ = false;
  before_.reset();
  return true;
}

absl::optional<std::vector<uint64_t>> BackupWatch::Look(absl::Duration patience) {
  const bool all_listen = std::none_of(addresses_.begin(), addresses_.end(),
                                       [](const std::string& address) { return address.empty(); });
  if (!all_listen) return absl::nullopt;
  if (client_ == nullptr) client_ = connect_(addresses_);
  std::vector<uint64_t> far;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const absl::StatusOr<ServerStatus> status =
        client_->GetServerStatus(static_cast<int>(i), patience);
    if (!status.ok() || status->has_restoring()) return absl::nullopt;
    far.push_back(has_log_ ? status->verdicts().acknowledged() : status->durability().checkpoint());
  }
  return far;
}

}  // namespace torchps
