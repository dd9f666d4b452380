#include "torchps/server/coordinator/batch_balancer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace torchps {
namespace {

// Bounds of a slot's share, as multiples of an equal share.
constexpr double kFloor = 0.125;
constexpr double kCeiling = 2;
// Minimum share of a slow slot in samples, because batch norm cannot train on a single sample.
constexpr double kLeast = 2;
// Maximum relative change of a share from one plan to the next.
constexpr double kLargestMove = 0.25;
// A step may exceed the shortest possible step by this fraction, or by the relative standard error
// of its predicted time if that is larger (Candidate::slack()).
constexpr double kSlack = 0.02;
// Shares begin to move if a slot's share would change by at least one sample. The predicted time of
// the slot's step must change by more than the fraction kStart and by kErrors standard errors.
// Equal shares begin to move only at kErrorsFromEqual standard errors. Most machines are equally
// fast, and among thousands of plans chance alone would exceed kErrors. Shares that move continue
// until no slot's time would change by more than slack().
constexpr double kStart = 0.03;
constexpr double kErrorsFromEqual = 4;
constexpr double kErrors = 2;
// If the relative standard error of a slot's predicted time exceeds this, the slot keeps its share.
constexpr double kLargestError = 0.15;
// Number of missed plans in a row after which a slot rests.
constexpr int kPlansMissed = 2;
// Tolerance for rounding errors in sums of shares.
constexpr double kRounding = 1e-9;

// Returns the x in [0, most] at which the rising function sum(x) reaches `total`.
template <typename Sum>
double Reach(double total, double most, const Sum& sum) {
  double least = 0;
  // 64 halvings reach the precision of a double.
  for (int halvings = 0; halvings < 64; ++halvings) {
    const double x = (least + most) / 2;
    (sum(x) < total ? least : most) = x;
  }
  return most;
}

}  // namespace

// A participating slot. Its step of x samples is predicted to last fixed + x * per_sample seconds.
struct BatchBalancer::Candidate {
  Slot* slot;
  double base;  // share, scaled so that all shares add up to WholeStep()
  double least, most;
  double fixed, per_sample;
  double error;  // relative standard error of the seconds; 0: unknown

  double Seconds(double samples) const { return fixed + samples * per_sample; }
  double SamplesIn(double seconds) const { return (seconds - fixed) / per_sample; }
  double slack() const { return std::max(kSlack, error); }
};

BatchBalancer::BatchBalancer(const TrainingSpec& training, int workers)
    : by_speed_(training.balance() == TrainingSpec::SPEED),
      global_(training.global_batch()),
      batch_size_(training.batch_size()),
      expected_(static_cast<size_t>(workers)) {}

std::vector<BatchBalancer::Slot*> BatchBalancer::Present() {
  std::vector<Slot*> present;
  for (auto& [id, slot] : slots_) {
    if (!slot.resting) present.push_back(&slot);
  }
  return present;
}

double BatchBalancer::EqualShare() const {
  if (!global_) return batch_size_;
  size_t sharers = all_came_ ? slots_.size() : std::max(slots_.size(), expected_);
  for (const auto& [id, slot] : slots_) sharers -= slot.resting ? 1 : 0;
  return batch_size_ / static_cast<double>(std::max<size_t>(sharers, 1));
}

int BatchBalancer::BatchFor(SlotId slot) {
  const auto found = slots_.find(slot);
  const bool has_taken = found != slots_.end() && !found->second.resting && !found->second.may_take;
  if (has_taken || waiting_.count(slot) > 0) NextPlan();
  Slot& asking = Join(slot);
  asking.may_take = false;
  asking.plans_missed = 0;
  asking.taken = asking.batch;
  return asking.taken;
}

BatchBalancer::Slot& BatchBalancer::Join(SlotId slot) {
  const auto [found, is_new] = slots_.try_emplace(slot);
  Slot& joining = found->second;
  if (is_new) {
    Admit(&joining);
  } else if (joining.resting) {
    joining.resting = false;
    MakeRoomFor(&joining);
  }
  return joining;
}

bool BatchBalancer::IsOutsidePlan(SlotId slot) const {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return all_came_ || waiting_.count(slot) > 0;
  return found->second.resting || waiting_.count(slot) > 0;
}

bool BatchBalancer::HasShare(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found != slots_.end() && !IsOutsidePlan(slot) && found->second.may_take;
}

double BatchBalancer::LongestPass() {
  double longest = 0;
  for (const Slot* slot : Present()) {
    if (!slot->time.known()) continue;
    longest =
        std::max(longest, slot->time.fixed_seconds() + slot->batch * slot->time.sample_seconds());
  }
  return longest;
}

void BatchBalancer::Observe(SlotId slot, uint64_t samples, double seconds) {
  const auto found = slots_.find(slot);
  if (found == slots_.end() || samples == 0 || !(seconds > 0)) return;
  const auto all = static_cast<double>(samples);
  const double passes = std::ceil(all / found->second.taken);
  found->second.time.Observe(all / passes, seconds / passes);
}

void BatchBalancer::Rest(SlotId slot) {
  waiting_.erase(slot);
  const auto found = slots_.find(slot);
  if (found == slots_.end() || found->second.resting) return;
  found->second.resting = true;
  found->second.may_take = false;
  ShareOut();
}

void BatchBalancer::Remove(SlotId slot) {
  waiting_.erase(slot);
  if (slots_.erase(slot) == 0) return;
  // Once all slots have left, as before a resume, EqualShare() counts the expected slots again.
  if (slots_.empty()) all_came_ = false;
  ShareOut();
}

int BatchBalancer::GetLatest(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second.taken;
}

void BatchBalancer::Admit(Slot* slot) {
  const double share = EqualShare();
  // Until all expected slots have joined, round the sum of the shares so far, not each share. So
  // the batches add up to the sum of the shares.
  const double before = all_came_ ? 0 : share * static_cast<double>(slots_.size() - 1);
  slot->share = share;
  slot->batch = std::max(
      1, static_cast<int>(before + share + kRounding) - static_cast<int>(before + kRounding));
  if (all_came_) MakeRoomFor(slot);
  if (slots_.size() >= expected_) all_came_ = true;
}

void BatchBalancer::MakeRoomFor(Slot* slot) {
  const std::vector<Slot*> present = Present();
  const double whole = WholeStep(present.size());
  // A slot that was alone before still has the share of the whole step.
  if (slot->share >= whole && present.size() > 1) slot->share = EqualShare();
  double others = -slot->share;
  for (const Slot* of : present) others += of->share;
  for (Slot* of : present) {
    if (of != slot) of->share *= (whole - slot->share) / others;
  }
  RoundShares();
  ShareOut();
}

std::map<SlotId, int> BatchBalancer::Save() const {
  std::map<SlotId, int> batches;
  for (const auto& [id, slot] : slots_) batches[id] = slot.batch;
  return batches;
}

void BatchBalancer::Restore(const std::map<SlotId, int>& batches) {
  for (const auto& [id, batch] : batches) {
    Slot& slot = slots_[id];
    slot.share = batch;
    slot.batch = batch;
    slot.taken = batch;
  }
  all_came_ = slots_.size() >= expected_;
}

void BatchBalancer::NextPlan() {
  for (const SlotId slot : std::exchange(waiting_, {})) Join(slot).may_take = false;
  for (Slot* slot : Present()) {
    if (slot->may_take && ++slot->plans_missed >= kPlansMissed) slot->resting = true;
    slot->may_take = !slot->resting;
  }
  ShareOut();
}

void BatchBalancer::ShareOut() {
  const std::vector<Candidate> all = Candidates();
  if (all.empty()) return;
  const std::vector<double> wanted = Wanted(all);
  const double equal = EqualShare();
  const double errors =
      std::all_of(all.begin(), all.end(),
                  [equal](const Candidate& of) { return std::abs(of.base - equal) < 1; })
          ? kErrorsFromEqual
          : kErrors;
  double shares = 0;
  bool off = false;
  // This plan moves all shares by this fraction of the way to the wanted shares.
  double part = 1;
  for (size_t i = 0; i < all.size(); ++i) {
    const Candidate& of = all[i];
    shares += of.slot->share;
    const double change = std::abs(of.Seconds(wanted[i]) / of.Seconds(of.base) - 1);
    const double samples = std::abs(wanted[i] - of.base);
    const bool starts =
        std::abs(wanted[i] - of.slot->batch) >= 1 && change > std::max(kStart, errors * of.error);
    if (starts || (moving_ && change > of.slack())) off = true;
    if (samples > 0) part = std::min(part, kLargestMove * of.base / samples);
  }
  const bool adds_up = std::abs(shares - WholeStep(all.size())) < 0.5;
  moving_ = off;
  if (!moving_ && adds_up) return;
  // If slots only joined or left, the shares keep their proportions. But if a share is outside of
  // the bounds, all shares become the wanted shares at once.
  if (!moving_) part = 0;
  for (const Candidate& of : all) {
    if (of.base < of.least - kRounding || of.base > of.most + kRounding) part = 1;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].slot->share = all[i].base + part * (wanted[i] - all[i].base);
  }
  RoundShares();
}

std::vector<BatchBalancer::Candidate> BatchBalancer::Candidates() {
  const std::vector<Slot*> present = Present();
  const double equal = EqualShare();
  double shares = 0;
  for (const Slot* slot : present) shares += slot->share;
  const double scale = WholeStep(present.size()) / shares;

  std::vector<Candidate> all;
  double samples = 0, samples_a_second = 0;
  for (Slot* slot : present) {
    Candidate of{};
    of.slot = slot;
    of.base = slot->share * scale;
    of.least = by_speed_ ? std::max(std::min(kLeast, equal), kFloor * equal) : equal;
    of.most = by_speed_ ? std::max(of.least, kCeiling * equal) : equal;
    const double error = slot->time.known() ? slot->time.Error(of.base) : 1;
    if (error <= kLargestError) {
      of.error = error;
      of.fixed = slot->time.fixed_seconds();
      of.per_sample = slot->time.sample_seconds();
      samples += of.base;
      samples_a_second += of.base / of.Seconds(of.base);
    }
    all.push_back(of);
  }
  // For a slot with an unknown time, assume that the current share is right.
  const double seconds = samples > 0 ? samples / samples_a_second : 1;
  for (Candidate& of : all) {
    if (of.per_sample == 0) of.per_sample = seconds / of.base;
  }
  return all;
}

std::vector<double> BatchBalancer::Wanted(const std::vector<Candidate>& all) const {
  const double whole = WholeStep(all.size());
  double longest = 0, largest = 0, shortest = 0;
  for (const Candidate& of : all) {
    longest = std::max(longest, of.Seconds(of.most));
    largest = std::max(largest, of.most);
    shortest = std::max(shortest, of.Seconds(of.least));
  }
  // Find the shortest possible step, in which all slots take equally long as far as their bounds
  // allow.
  shortest = std::max(shortest, Reach(whole, longest, [&](double seconds) {
                        double sum = 0;
                        for (const Candidate& of : all)
                          sum += std::clamp(of.SamplesIn(seconds), of.least, of.most);
                        return sum;
                      }));
  // Make the shares as equal as the slack allows.
  const auto share = [shortest](const Candidate& of, double level) {
    const double most = of.SamplesIn(shortest * (1 + of.slack()));
    return std::clamp(std::min(most, level), of.least, of.most);
  };
  const double level = Reach(whole, largest, [&](double level) {
    double sum = 0;
    for (const Candidate& of : all) sum += share(of, level);
    return sum;
  });
  std::vector<double> wanted;
  for (const Candidate& of : all) wanted.push_back(share(of, level));
  return wanted;
}

void BatchBalancer::RoundShares() {
  double sum = 0;
  std::vector<std::pair<double, Slot*>> rests;
  int given = 0;
  for (Slot* slot : Present()) {
    sum += slot->share;
    slot->batch = std::max(1, static_cast<int>(slot->share + kRounding));
    given += slot->batch;
    rests.emplace_back(slot->share - slot->batch, slot);
  }
  // Round up the largest remainders first. Among equal remainders, the lowest slot comes first.
  std::stable_sort(rests.begin(), rests.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const int missing = static_cast<int>(std::lround(sum)) - given;
  for (int i = 0; i < missing && i < static_cast<int>(rests.size()); ++i) ++rests[i].second->batch;
}

}  // namespace torchps
