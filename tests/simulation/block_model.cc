#include "tests/simulation/block_model.h"

#include <algorithm>
#include <cmath>

namespace torchps::simulation {
namespace {

// Tolerance for sums of small integers that are scaled, averaged or kept as float32.
constexpr double kTolerance = 0.02;

bool SameLedger(const std::map<SlotId, LedgerEntry>& a, const std::map<SlotId, LedgerEntry>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& left, const auto& right) {
           return left.first == right.first &&
                  left.second.incarnation == right.second.incarnation &&
                  left.second.last_step == right.second.last_step &&
                  left.second.applied == right.second.applied;
         });
}

}  // namespace

BlockModel::BlockModel(World* world, const Scenario* scenario, BlockId id)
    : world_(world),
      scenario_(scenario),
      id_(id),
      sgd_(scenario->job.optimizer().sgd()),
      batch_(scenario->job) {}

Step BlockModel::LastStep(SlotId slot) const {
  const auto found = ledger_.find(slot);
  return found == ledger_.end() ? 0 : found->second.last_step;
}

bool BlockModel::Has(const Name& name) const {
  return std::any_of(history_.begin(), history_.end(),
                     [&](const Event& event) { return Is(event, name); });
}

bool BlockModel::Is(const Event& event, const Name& name) {
  return event.slot == name.slot && event.entry.incarnation == name.incarnation &&
         event.entry.last_step == name.step;
}

void BlockModel::Push(const PushHeader& header, bool restored) {
  if (!initialized_) {
    world_->Violation("block ", id_, " took a push before it had values");
    return;
  }
  LedgerEntry& entry = ledger_[header.slot];
  if (header.incarnation < entry.incarnation) {
    world_->Violation("block ", id_, " took a push of incarnation ", header.incarnation,
                      " of slot ", header.slot, " after one of ", entry.incarnation);
    return;
  }
  // The block must not change after a repeated push.
  if (header.incarnation == entry.incarnation && header.step <= entry.last_step) return;
  entry.incarnation = header.incarnation;
  if (scenario_->synchronous()) {
    PushSync(header, restored);
  } else if (scenario_->whole_batches()) {
    PushBatch(header, restored);
  } else {
    PushAsync(header, restored);
  }
}

void BlockModel::PushAsync(const PushHeader& header, bool restored) {
  LedgerEntry& entry = ledger_[header.slot];
  entry.last_step = header.step;
  entry.last_lag = version_ - header.base_version;
  if (restored && entry.last_lag < 0) entry.last_lag = 0;
  if (entry.last_lag < 0) {
    world_->Violation("block ", id_, " took a push on version ", header.base_version,
                      ", which it never had");
  }
  const LagContract& lag = scenario_->job.consistency().lag();
  double rate = 1;
  double gradient = GetGradient(header.slot, header.incarnation, header.step, id_);
  entry.last_verdict = ACCEPTED;
  if (lag.policy() == LagContract::REJECT) {
    if (entry.last_lag > lag.max_lag()) entry.last_verdict = REJECTED_STALE;
  } else if (lag.policy() == LagContract::WEIGH && entry.last_lag > lag.free_lag()) {
    entry.last_verdict = SCALED;
    gradient *= static_cast<double>(lag.free_lag()) / static_cast<double>(entry.last_lag);
  }
  if (header.withheld) entry.last_verdict = WITHHELD;
  const TrainingSpec& training = scenario_->job.training();
  if (training.balance() == TrainingSpec::SPEED) {
    rate *= static_cast<double>(header.weight) / training.batch_size();
  }
  if (entry.last_verdict != REJECTED_STALE && entry.last_verdict != WITHHELD) {
    ++entry.applied;
    ++version_;
    if (header.absent.empty()) sgd_.Take(gradient, rate, &element_);
  }
  Note(header.slot, entry);
}

void BlockModel::PushSync(const PushHeader& header, bool restored) {
  // A restored block can be rounds behind the other servers, which went on while this server was
  // down. A push of a later step ends the open round and skips the rounds in between.
  if (restored && header.step > version_ + 1 && !round_.empty()) EndRound(/*missing=*/{});
  if (restored && header.step > version_ + 1) {
    version_ = header.step - 1;
    began_.reset();
    Note(std::nullopt, {});
  }
  LedgerEntry& entry = ledger_[header.slot];
  entry.last_step = header.step;
  entry.last_lag = 0;
  if (header.step <= version_) {
    entry.last_verdict = LATE;
    Note(header.slot, entry);
    return;
  }
  if (header.step != version_ + 1) {
    world_->Violation("block ", id_, ", which collects step ", version_ + 1, ", took step ",
                      header.step);
  }
  entry.last_verdict = header.withheld ? WITHHELD : ACCEPTED;
  if (round_.count(header.slot) > 0) {
    world_->Violation("block ", id_, " took two gradients of slot ", header.slot, " into step ",
                      header.step);
  }
  Contribution& contribution = round_[header.slot];
  if (!header.withheld) {
    ++entry.applied;
    contribution.weight = header.weight;
    // In a mean over slots, an absent gradient counts as zero.
    contribution.absent = !header.absent.empty();
    contribution.gradient =
        contribution.absent ? 0 : GetGradient(header.slot, header.incarnation, header.step, id_);
  }
  contribution.entry = entry;
}

void BlockModel::PushBatch(const PushHeader& header, bool restored) {
  if (batch_.Holds(header.slot)) {
    world_->Violation("block ", id_, " took a push of slot ", header.slot,
                      " before it applied the previous push");
  }
  LedgerEntry& entry = ledger_[header.slot];
  entry.last_step = header.step;
  entry.last_lag = version_ - header.base_version;
  // The worker may have pulled before the rollback, at a version that the block no longer has. The
  // lag is then unknown and counts as 0.
  if (restored && entry.last_lag < 0) entry.last_lag = 0;
  if (entry.last_lag < 0) {
    world_->Violation("block ", id_, " took a push on version ", header.base_version,
                      ", which it never had");
  }
  const int bound = scenario_->job.consistency().staleness_bound();
  if (bound >= 0 && entry.last_lag > bound) {
    entry.last_verdict = REJECTED_STALE;
    Note(header.slot, entry);
    return;
  }
  entry.last_verdict = header.withheld ? WITHHELD : ACCEPTED;
  BatchModel::Part part;
  part.incarnation = header.incarnation;
  part.step = header.step;
  part.lag = entry.last_lag;
  part.samples = header.weight;
  part.share = header.share;
  if (!header.withheld) {
    ++entry.applied;
    part.weight = header.weight;
    part.absent = !header.absent.empty();
    part.gradient =
        part.absent ? 0 : GetGradient(header.slot, header.incarnation, header.step, id_);
  }
  batch_.Add(header.slot, part);
  accepted_samples_ += batch_.last_fill();
  is_fed_ = true;
}

void BlockModel::ObserveBatch(const State& state, const BatchModel::Slots& slots) {
  const bool is_fed = std::exchange(is_fed_, false);
  const BatchModel::Due due = batch_.DueNow(slots);
  if (state.version == version_) {
    if (due != BatchModel::Due::kMust) return;
    world_->Violation("block ", id_, " still collects with ", batch_.fill(), " samples of ",
                      batch_.Whole(slots.live), "; its update is due");
    return;
  }
  if (due == BatchModel::Due::kNo) {
    world_->Violation("block ", id_, " made update ", state.version, " with ", batch_.fill(),
                      " samples of ", batch_.Whole(slots.live), " from ", batch_.parts().size(),
                      " of ", slots.live.size(), " live slots, and no slot waited long enough");
    return;
  }
  const double whole = batch_.Whole(slots.live);
  if (is_fed && !batch_.IsEarly(slots.live) &&
      static_cast<double>(batch_.fill()) >= whole + static_cast<double>(batch_.last_fill())) {
    world_->Violation("block ", id_, " had a whole batch of ", whole,
                      " samples before its last push");
  }
  MakeUpdate(slots.live);
}

void BlockModel::MakeUpdate(const std::set<SlotId>& live) {
  const int bound = scenario_->job.consistency().staleness_bound();
  ++version_;
  ++updates_.made;
  updated_samples_ += batch_.fill();
  if (batch_.IsEarly(live)) ++updates_.early;
  if (batch_.Weight() > 0 && !batch_.IsAbsent()) {
    sgd_.Take(batch_.PartOfBatch(live) * batch_.Mean(), /*rate=*/1, &element_);
  }
  for (const auto& [slot, part] : batch_.parts()) {
    const Name name = {slot, part.incarnation, part.step};
    if (bound >= 0 && part.lag > bound) {
      world_->Violation("block ", id_, " applied a gradient ", part.lag, " updates old");
    }
    if (Has(name)) {
      world_->Violation("block ", id_, " applied step ", part.step, " of slot ", slot, " twice");
    }
    Note(slot, ledger_[slot]);
    history_.back().whole = false;
  }
  history_.back().whole = true;
  batch_.Clear();
  if (updated_samples_ != accepted_samples_) {
    world_->Violation("block ", id_, " accepted ", accepted_samples_,
                      " samples; the updates contain ", updated_samples_);
  }
}

absl::Duration BlockModel::Grace(const std::map<SlotId, Step>& missing) const {
  // A round has a grace only for missing slots that pushed in the previous round.
  const bool any_follows = std::any_of(missing.begin(), missing.end(), [&](const auto& entry) {
    return std::max(entry.second, LastStep(entry.first)) >= version_;
  });
  if (!any_follows) return absl::ZeroDuration();
  if (!began_.has_value()) return absl::ZeroDuration();
  return scenario_->job.consistency().grace_part() *
         (quorum_since_.value_or(world_->now()) - *began_);
}

void BlockModel::EndRound(const std::map<SlotId, Step>& missing) {
  const absl::Duration grace = Grace(missing);
  const absl::Duration since = std::exchange(quorum_since_, std::nullopt).value_or(world_->now());
  began_ = world_->now();
  ++version_;
  if (round_.empty()) {
    Note(std::nullopt, {});
    return;
  }
  if (static_cast<int>(missing.size()) > scenario_->job.consistency().backup_workers()) {
    world_->Violation("block ", id_, " ended round ", version_, " without ", missing.size(),
                      " live slots");
  }
  if (world_->now() < since + grace) {
    world_->Violation("block ", id_, " ended round ", version_, " without ", missing.size(),
                      " live slots, before its grace had passed");
  }
  double sum = 0;
  double weight = 0;
  bool any = false;
  for (const auto& [slot, contribution] : round_) {
    sum += contribution.weight * contribution.gradient;
    weight += contribution.weight;
    any |= contribution.weight > 0 && !contribution.absent;
  }
  if (any) sgd_.Take(sum / weight, /*rate=*/1, &element_);
  for (const auto& [slot, contribution] : std::exchange(round_, {})) {
    Note(slot, contribution.entry);
    history_.back().whole = false;
  }
  history_.back().whole = true;
}

void BlockModel::Note(std::optional<SlotId> slot, const LedgerEntry& entry) {
  Event event;
  event.slot = slot;
  event.entry = entry;
  event.version = version_;
  event.element = element_;
  history_.push_back(event);
}

void BlockModel::Observe(const State& state, const FindMissing& find_missing,
                         const BatchModel::Slots& slots) {
  if (scenario_->whole_batches()) ObserveBatch(state, slots);
  if (scenario_->synchronous()) {
    const auto missing_now = [&] {
      std::set<SlotId> contributors;
      for (const auto& [slot, contribution] : round_) contributors.insert(slot);
      return find_missing(version_ + 1, contributors);
    };
    while (version_ < state.version) EndRound(missing_now());
    const int backup = scenario_->job.consistency().backup_workers();
    if (round_.empty() || static_cast<int>(missing_now().size()) > backup) {
      quorum_since_.reset();
    } else if (!quorum_since_.has_value()) {
      quorum_since_ = world_->now();
    }
  }
  world_->Digest(static_cast<uint64_t>(state.version));
  if (state.initialized != initialized_ || state.version != version_ ||
      std::abs(state.value - element_.value) > kTolerance) {
    world_->Violation("block ", id_, " is at version ", state.version, " with value ", state.value,
                      "; expected version ", version_, " with value ", element_.value);
    return;
  }
  // Copies the real value into the model, because rounding errors must not add up, and Restore()
  // compares values exactly.
  element_.value = state.value;
  for (auto event = history_.rbegin(); event != history_.rend() && event->version == version_;
       ++event) {
    event->element.value = state.value;
  }
}

void BlockModel::Acknowledge(const Name& name, const BlockVerdict& verdict) {
  const auto& [slot, incarnation, step] = name;
  const LedgerEntry& entry = ledger_[slot];
  const bool has_it = entry.incarnation == incarnation && entry.last_step >= step;
  if (has_it && entry.last_step > step) return;  // the answer to a late repeat
  if (!has_it || round_.count(slot) > 0 || batch_.Holds(slot)) {
    world_->Violation("slot ", slot, "'s step ", step, " by incarnation ", incarnation,
                      " was acknowledged before block ", id_, has_it ? " applied it" : " had it");
    return;
  }
  if (verdict.verdict() != entry.last_verdict) {
    world_->Violation("slot ", slot, " got the verdict ", Verdict_Name(verdict.verdict()),
                      " of step ", step, " on block ", id_, "; expected ",
                      Verdict_Name(entry.last_verdict));
  }
  for (auto event = history_.rbegin(); event != history_.rend(); ++event) {
    if (!Is(*event, name)) continue;
    event->acknowledged = true;
    return;
  }
}

std::vector<BlockModel::Name> BlockModel::Restore(const State& state) {
  const auto is_it = [&](const State& past) {
    const bool same_version =
        past.version == state.version || (scenario_->synchronous() && past.version < state.version);
    return same_version && past.value == state.value && SameLedger(past.ledger, state.ledger);
  };
  State past;
  State then = past;
  SgdModel::State element;
  size_t kept = 0;
  bool is_found = is_it(past);
  for (size_t i = 0; i < history_.size(); ++i) {
    const Event& event = history_[i];
    past.version = event.version;
    past.value = static_cast<float>(event.element.value);
    if (event.slot.has_value()) past.ledger[*event.slot] = event.entry;
    if (!event.whole || !is_it(past)) continue;
    is_found = true;
    kept = i + 1;
    then = past;
    element = event.element;
  }
  if (!is_found || (!initialized_ && state.initialized)) {
    world_->Violation("block ", id_, " came back at version ", state.version, " with value ",
                      state.value, " and ", state.ledger.size(),
                      " slots in its ledger: it was never like that");
  }
  std::vector<Name> lost;
  for (size_t i = kept; i < history_.size(); ++i) {
    const Event& event = history_[i];
    if (!event.acknowledged) continue;
    lost.push_back({*event.slot, event.entry.incarnation, event.entry.last_step});
  }
  history_.resize(kept);
  initialized_ = state.initialized;
  version_ = state.version;
  element_ = element;
  ledger_ = then.ledger;
  round_.clear();
  batch_.Clear();
  is_fed_ = false;
  updates_ = {};
  accepted_samples_ = updated_samples_ = 0;
  quorum_since_.reset();
  began_.reset();
  if (then.version != version_) Note(std::nullopt, {});
  return lost;
}

}  // namespace torchps::simulation
