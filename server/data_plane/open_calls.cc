#include "server/data_plane/open_calls.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

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
    const std::optional<absl::Duration> since = pull->sending_since();
    if (since.has_value() && now - *since >= patience) pull->End();
  }
}

namespace {

struct Silent {
  std::shared_ptr<OpenPush> push;
  OpenPush::State state;
  absl::Duration silence;
};

absl::Status TooSilent(absl::Duration silence) {
  return absl::DeadlineExceededError(
      absl::StrCat("this Push sent nothing for ",
                   absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(100))),
                   " while others waited; repeat it"));
}

}  // namespace

OpenPushes::Name OpenPushes::Add(std::weak_ptr<OpenPush> push) {
  MutexLock lock(&mutex_);
  pushes_[++last_name_] = std::move(push);
  return last_name_;
}

void OpenPushes::Remove(Name name) {
  MutexLock lock(&mutex_);
  pushes_.erase(name);
}

void OpenPushes::Watch() {
  HostedJob* const job = server_->job();
  if (job == nullptr) return;
  std::vector<std::weak_ptr<OpenPush>> pushes;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, push] : pushes_) pushes.push_back(push);
  }
  const bool others_wait = server_->receive_budget().waits();
  const absl::Duration now = clock_->Now();
  std::vector<Silent> silent;
  for (const std::weak_ptr<OpenPush>& open : pushes) {
    const std::shared_ptr<OpenPush> push = open.lock();
    if (push == nullptr) continue;
    OpenPush::State state = push->Describe();
    if (state.holder.has_value()) {
      const absl::Status live = job->CheckLive(state.holder->slot, state.holder->incarnation);
      if (!live.ok()) {
        push->End(live);
        continue;
      }
    }
    if (!others_wait || !state.silent_since.has_value()) continue;
    const absl::Duration silence = now - *state.silent_since;
    if (silence >= kSilence) silent.push_back({push, std::move(state), silence});
  }
  std::stable_sort(silent.begin(), silent.end(),
                   [](const Silent& a, const Silent& b) { return a.silence > b.silence; });
  const absl::Duration patience = CallPatience(job);
  std::set<std::string> connections;
  std::vector<const Silent*> patient;
  bool has_room = true;
  for (const Silent& one : silent) {
    const std::string& connection = one.state.connection;
    if (!connection.empty() && !connections.insert(connection).second) {
      one.push->End(TooSilent(one.silence));
      continue;
    }
    patient.push_back(&one);
    if (!one.state.is_aside) has_room = has_room && one.push->MoveToStalledBudget();
  }
  if (has_room) return;
  for (const Silent* one : patient) {
    if (one->silence >= patience) one->push->End(TooSilent(one->silence));
  }
}

}  // namespace torchps
