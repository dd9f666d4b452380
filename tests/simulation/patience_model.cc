#include "tests/simulation/patience_model.h"

#include <algorithm>
#include <utility>

namespace torchps::simulation {
namespace {

constexpr size_t kStepsOfMedian = 5;
// The minimum length of a turn.
constexpr absl::Duration kShortestTurn = absl::Milliseconds(50);

}  // namespace

void PatienceModel::OnPushEnd(SlotId id, Incarnation incarnation, Step step, Waits waits,
                              absl::Duration now) {
  Slot& slot = slots_[id];
  // Late repeats of earlier pushes do not end a step.
  if (std::make_pair(incarnation, step) > std::make_pair(slot.incarnation, slot.step)) {
    if (slot.pulled.has_value()) slot.steps.push_back(now - *slot.pulled);
    slot.pulled.reset();
    slot.ended = now;
    slot.incarnation = incarnation;
    slot.step = step;
  }
  if (waits == Waits::kNothing) return;
  absl::Duration shortest = patience_ * lease_, longest = shortest;
  if (const size_t count = std::min(slot.steps.size(), kStepsOfMedian); count > 0) {
    std::vector<absl::Duration> last(slot.steps.end() - static_cast<ptrdiff_t>(count),
                                     slot.steps.end());
    std::sort(last.begin(), last.end());
    shortest = std::max(kShortestTurn, patience_ * last[(count - 1) / 2]);
    longest = std::max(kShortestTurn, patience_ * last[count / 2]);
  }
  if (!slot.wait.has_value()) slot.wait = Wait{now, shortest};
  slot.wait->shortest_turn = std::min(slot.wait->shortest_turn, shortest);
  if (waits == Waits::kAnother || slot.wait->due < absl::InfiniteDuration()) return;
  slot.wait->longest_turn = longest;
  slot.wait->due = now + longest;
}

void PatienceModel::OnPull(SlotId id, absl::Duration now) {
  Slot& slot = slots_[id];
  if (!slot.ended.has_value()) return;
  slot.pull_began = now;
  slot.ended_before_pull = *slot.ended;
  slot.ended.reset();
}

void PatienceModel::OnSettled(SlotId slot, absl::Duration now) {
  slots_[slot].wait.reset();
  slots_[slot].settled = now;
}

bool PatienceModel::HasEnded(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found != slots_.end() && found->second.ended.has_value();
}

bool PatienceModel::MayWait(SlotId id, absl::Duration now) const {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return false;
  const Slot& slot = found->second;
  if (slot.pull_began == now && now - slot.ended_before_pull >= kShortestTurn) return true;
  if (!slot.ended.has_value()) return false;
  // The slot waits here, or this server has just answered its push and the pull follows, or the
  // push ended long enough ago to wait at another server.
  return slot.wait.has_value() || slot.settled == now || now - *slot.ended >= kShortestTurn;
}

void PatienceModel::OnHousekeeping(absl::Duration now) {
  for (auto& [id, slot] : slots_) {
    if (!slot.wait.has_value() || now < slot.wait->due) continue;
    ++slot.wait->turns;
    slot.wait->due = now + slot.wait->longest_turn;
  }
}

int PatienceModel::MostTurns(SlotId slot, absl::Duration now) const {
  const auto found = slots_.find(slot);
  if (found == slots_.end() || !found->second.wait.has_value()) return 0;
  const Wait& wait = *found->second.wait;
  return static_cast<int>(absl::FDivDuration(now - wait.since, wait.shortest_turn));
}

int PatienceModel::LeastTurns(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() || !found->second.wait.has_value() ? 0 : found->second.wait->turns;
}

absl::Duration PatienceModel::Due(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() || !found->second.wait.has_value() ? absl::InfiniteDuration()
                                                                  : found->second.wait->due;
}

std::vector<SlotId> PatienceModel::Waiting() const {
  std::vector<SlotId> waiting;
  for (const auto& [id, slot] : slots_) {
    if (slot.wait.has_value()) waiting.push_back(id);
  }
  return waiting;
}

}  // namespace torchps::simulation
