#include "server/coordinator/work/batch_balancer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace torchps {
namespace {

// Two that are off, as by a pause or by a page cache that is cold, are outvoted.
constexpr size_t kSpeeds = 5;
// By so much of itself a share moves at most from one plan to the next.
constexpr double kLargestMove = 0.25;
// Shares begin to move where one is off by more than the first, and go on until all are within the
// second: speeds are measured, and differ from step to step.
constexpr double kStartMoving = 0.1;
constexpr double kStopMoving = 0.03;
// Batch norm cannot train on one sample: nobody gets so few for being slow.
constexpr double kLeast = 2;
// Makes a whole number of the sum of its parts.
constexpr double kRounding = 1e-9;

double Median(std::deque<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

BatchBalancer::BatchBalancer(const TrainingSpec& training, int workers)
    : by_speed_(training.balance() == TrainingSpec::SPEED),
      global_(training.global_batch()),
      batch_size_(training.batch_size()),
      floor_(by_speed_ ? training.balance_floor() : 1),
      ceiling_(by_speed_ ? training.balance_ceiling() : 1),
      expected_(static_cast<size_t>(workers)) {}

double BatchBalancer::EqualShare() const {
  if (!global_) return batch_size_;
  const size_t sharers = all_came_ ? slots_.size() : std::max(slots_.size(), expected_);
  return batch_size_ / static_cast<double>(sharers);
}

int BatchBalancer::BatchFor(SlotId slot) {
  const auto [found, is_new] = slots_.try_emplace(slot);
  Slot& asking = found->second;
  if (is_new) {
    Admit(&asking);
  } else if (!asking.may_take) {
    Plan();
  }
  asking.may_take = false;
  return asking.batch;
}

void BatchBalancer::Observe(SlotId slot, uint64_t samples, double seconds) {
  const auto found = slots_.find(slot);
  if (found == slots_.end() || samples == 0 || !(seconds > 0)) return;
  std::deque<double>& speeds = found->second.speeds;
  speeds.push_back(static_cast<double>(samples) / seconds);
  if (speeds.size() > kSpeeds) speeds.pop_front();
}

void BatchBalancer::Remove(SlotId slot) {
  slots_.erase(slot);
  // All have gone, as before a resume: those that come next are the first ones again.
  if (slots_.empty()) all_came_ = false;
}

int BatchBalancer::LatestOf(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second.batch;
}

void BatchBalancer::Admit(Slot* slot) {
  const double share = EqualShare();
  // The first ones' whole numbers add up to what all take.
  const double before = all_came_ ? 0 : share * static_cast<double>(slots_.size() - 1);
  slot->share = share;
  slot->batch = std::max(
      1, static_cast<int>(before + share + kRounding) - static_cast<int>(before + kRounding));
  if (slots_.size() >= expected_) all_came_ = true;
}

std::map<SlotId, int> BatchBalancer::Save() const {
  std::map<SlotId, int> batches;
  for (const auto& [id, slot] : slots_) batches[id] = slot.batch;
  return batches;
}

void BatchBalancer::Restore(const std::map<SlotId, int>& batches) {
  for (const auto& [id, batch] : batches) {
    slots_[id].share = batch;
    slots_[id].batch = batch;
  }
  all_came_ = slots_.size() >= expected_;
}

void BatchBalancer::Plan() {
  for (auto& [id, slot] : slots_) slot.may_take = true;
  double off = 0;
  for (const auto& [id, wanted] : Wanted(/*slowly=*/false)) {
    const double share = slots_.at(id).share;
    off = std::max(off, std::abs(wanted - share) / share);
  }
  double sum = 0;
  for (const auto& [id, slot] : slots_) sum += slot.share;
  // Otherwise somebody has come or gone.
  const bool adds_up = std::abs(sum - WholeStep()) < 0.5;
  moving_ = !adds_up || off > (moving_ ? kStopMoving : kStartMoving);
  if (!moving_) return;
  for (const auto& [id, wanted] : Wanted(/*slowly=*/by_speed_)) slots_.at(id).share = wanted;
  RoundShares();
}

std::map<SlotId, double> BatchBalancer::Wanted(bool slowly) const {
  double speeds = 0, shares = 0;
  for (const auto& [id, slot] : slots_) {
    if (slot.speeds.empty()) continue;
    speeds += Median(slot.speeds);
    shares += slot.share;
  }
  const double speed_of_a_sample = shares > 0 ? speeds / shares : 1;
  struct Bounds {
    double speed, least, most;
  };
  std::map<SlotId, Bounds> bounds;
  for (const auto& [id, slot] : slots_) {
    // Of one that has not computed yet nothing is known: its share is right.
    Bounds& of = bounds[id];
    of.speed = slot.speeds.empty() ? slot.share * speed_of_a_sample : Median(slot.speeds);
    of.least = std::max(std::min(kLeast, EqualShare()), floor_ * EqualShare());
    of.most = std::max(of.least, ceiling_ * EqualShare());
    if (slowly) {
      const double least = of.least, most = of.most;
      of.least = std::clamp(slot.share * (1 - kLargestMove), least, most);
      of.most = std::clamp(slot.share * (1 + kLargestMove), least, most);
    }
  }
  // The time that all take for a step of so many samples together; what bounds give to one or take
  // from it, the others take or get.
  const double total = WholeStep();
  const auto share = [](const Bounds& of, double seconds) {
    return std::clamp(of.speed * seconds, of.least, of.most);
  };
  double shortest = 0, longest = 0;
  for (const auto& [id, of] : bounds) longest = std::max(longest, of.most / of.speed);
  // As exact as a double is.
  for (int halvings = 0; halvings < 64; ++halvings) {
    const double seconds = (shortest + longest) / 2;
    double sum = 0;
    for (const auto& [id, of] : bounds) sum += share(of, seconds);
    (sum < total ? shortest : longest) = seconds;
  }
  std::map<SlotId, double> wanted;
  for (const auto& [id, of] : bounds) wanted[id] = share(of, longest);
  return wanted;
}

void BatchBalancer::RoundShares() {
  double sum = 0;
  std::vector<std::pair<double, SlotId>> rests;
  int given = 0;
  for (auto& [id, slot] : slots_) {
    sum += slot.share;
    slot.batch = std::max(1, static_cast<int>(slot.share));
    given += slot.batch;
    rests.emplace_back(slot.share - slot.batch, id);
  }
  // The largest rests are rounded up.
  std::sort(rests.begin(), rests.end(), std::greater<>());
  const int missing = static_cast<int>(std::lround(sum)) - given;
  for (int i = 0; i < missing && i < static_cast<int>(rests.size()); ++i) {
    ++slots_.at(rests[i].second).batch;
  }
}

}  // namespace torchps
