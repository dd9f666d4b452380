#include "tests/simulation/batch_model.h"

#include <algorithm>
#include <cmath>

namespace torchps::simulation {

int64_t BatchModel::GetFill(const Part& part) const {
  if (part.share > 0 && !EndsJob(part)) return part.share;
  return part.samples;
}

int64_t BatchModel::fill() const {
  int64_t fill = 0;
  for (const auto& [slot, part] : parts_) fill += GetFill(part);
  return fill;
}

double BatchModel::Whole(const std::set<SlotId>& live) const {
  const auto slots = static_cast<double>(std::max<size_t>(live.size(), 1));
  return static_cast<double>(batch_samples_) * (is_of_each_ ? slots : 1);
}

double BatchModel::Slack(const std::set<SlotId>& live) const {
  if (live.size() < 2) return 0;
  const double share = Whole(live) / static_cast<double>(live.size());
  // The slack is the number of samples that a whole batch may lack. If a slot's share is below two
  // samples, a slack of one sample could leave out a whole slot.
  return share < 2 ? 0 : std::max(1.0, share / 16);
}

bool BatchModel::IsFull(const std::set<SlotId>& live) const {
  return static_cast<double>(fill()) >= Whole(live) - Slack(live);
}

bool BatchModel::IsEarly(const std::set<SlotId>& live) const {
  const bool ends_job = std::any_of(parts_.begin(), parts_.end(),
                                    [this](const auto& entry) { return EndsJob(entry.second); });
  return !ends_job && !IsFull(live);
}

double BatchModel::PartOfBatch(const std::set<SlotId>& live) const {
  return IsEarly(live) ? static_cast<double>(fill()) / Whole(live) : 1;
}

BatchModel::Due BatchModel::DueNow(const Slots& slots) const {
  if (parts_.empty()) return Due::kNo;
  if (IsFull(slots.live)) return Due::kMust;
  // A slot whose push has ended and that has not pulled since waits for another block. The batch of
  // this block must do without it.
  const auto must_lack = [&](SlotId slot) {
    return slots.patience->HasEnded(slot) && slots.is_collected(slot);
  };
  const auto may_lack = [&](SlotId slot) { return slots.patience->MayWait(slot, slots.now); };
  const auto all_live = [&](const auto& may_be_without) {
    return std::all_of(slots.live.begin(), slots.live.end(),
                       [&](SlotId slot) { return Holds(slot) || may_be_without(slot); });
  };
  if (all_live(must_lack)) return Due::kMust;
  Due due = all_live(may_lack) ? Due::kMay : Due::kNo;
  const double whole = Whole(slots.live);
  const auto filled = static_cast<double>(fill());
  for (const auto& [slot, part] : parts_) {
    const int least = slots.patience->LeastTurns(slot);
    if (least > 0 && filled * std::exp2(least) >= whole) return Due::kMust;
    const int most = slots.patience->MostTurns(slot, slots.now);
    if (most > 0 && filled * std::exp2(most) >= whole) due = Due::kMay;
  }
  return due;
}

double BatchModel::Weight() const {
  double weight = 0;
  for (const auto& [slot, part] : parts_) weight += part.weight;
  return weight;
}

double BatchModel::Mean() const {
  double sum = 0;
  for (const auto& [slot, part] : parts_) sum += part.weight * part.gradient;
  return sum / Weight();
}

bool BatchModel::IsAbsent() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& entry) {
    return entry.second.weight == 0 || entry.second.absent;
  });
}

}  // namespace torchps::simulation
