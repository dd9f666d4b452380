#include "torchps/server/data_plane/open_calls.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

struct StalledPush {
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

void OpenPulls::Watch() {
  HostedJob* const job = server_->job();
  if (job == nullptr || !server_->pull_budget().waits()) return;
  const absl::Duration patience = CallPatience(job);
  const absl::Duration now = clock_->Now();
  for (const std::shared_ptr<OpenPull>& pull : List()) {
    const std::optional<absl::Duration> since = pull->sending_since();
    if (since.has_value() && now - *since >= patience) pull->End();
  }
}

void OpenPushes::Watch() {
  HostedJob* const job = server_->job();
  if (job == nullptr) return;
  const bool others_wait = server_->push_budget().share(PushBudget::Share::kWorking).waits();
  const absl::Duration now = clock_->Now();
  std::vector<StalledPush> stalled;
  for (const std::shared_ptr<OpenPush>& push : List()) {
    OpenPush::State state = push->Describe();
    if (state.holder.has_value()) {
      const absl::Status live = job->CheckLive(state.holder->slot, state.holder->incarnation);
      if (!live.ok()) {
        push->End(live);
        continue;
      }
    }
    // Working pushes do not wait for the bytes of unverified connections.
    if (!others_wait || !state.reading.has_value() ||
        state.reading->share == PushBudget::Share::kUnverified) {
      continue;
    }
    const absl::Duration silence = now - state.reading->since;
    if (silence >= kSilence) stalled.push_back({push, std::move(state), silence});
  }
  std::stable_sort(stalled.begin(), stalled.end(), [](const StalledPush& a, const StalledPush& b) {
    return a.silence > b.silence;
  });
  const absl::Duration patience = CallPatience(job);
  std::set<std::string> connections;
  std::vector<const StalledPush*> kept;
  bool all_moved = true;
  for (const StalledPush& one : stalled) {
    const std::string& connection = one.state.connection;
    if (!connection.empty() && !connections.insert(connection).second) {
      one.push->End(TooSilent(one.silence));
      continue;
    }
    kept.push_back(&one);
    if (one.state.reading->share == PushBudget::Share::kWorking) {
      all_moved = all_moved && one.push->MoveToStalledShare();
    }
  }
  if (all_moved) return;
  for (const StalledPush* one : kept) {
    if (one->silence >= patience) one->push->End(TooSilent(one->silence));
  }
}

}  // namespace torchps
