#include "tests/simulation/server_model.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps::simulation {

ServerModel::ServerModel(World* world, const Scenario* scenario, int server)
    : world_(world),
      scenario_(scenario),
      name_(absl::StrCat("server ", server)),
      patience_(scenario->job.consistency().patience(), scenario->lease()) {
  for (const BlockId id : scenario->map.owned_by(server)) {
    blocks_.emplace_back(world, scenario, id);
  }
}

void ServerModel::OnDeath() {
  past_updates_ = updates();
  job_ = nullptr;
  slots_.clear();
  patience_.OnDeath();
  waits_.clear();
  acknowledged_.clear();
  granted_.clear();
  min_clock_ = 0;
  min_clock_before_ = 0;
}

void ServerModel::OnJob(HostedJob* job, bool restored, bool from_log) {
  job_ = job;
  restored_ = restored;
  std::set<BlockModel::Name> lost;
  ServerStatus status;
  job->Describe(/*include_ledger=*/true, &status);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    for (const BlockModel::Name& name : blocks_[i].Restore(ReadState(i, status))) lost.insert(name);
  }
  world_->Trace(name_, " starts ", restored ? "from saved state" : "without saved state",
                ", without ", lost.size(), " acknowledged pushes");
  if (from_log && !lost.empty()) {
    world_->Violation(name_, " restored its log without ", lost.size(),
                      " acknowledged pushes, the first one step ", lost.begin()->step, " of slot ",
                      lost.begin()->slot, " by incarnation ", lost.begin()->incarnation);
  }
  if (restored) Expect();
}

void ServerModel::Expect() {
  // Each slot in a restored ledger is live at first. Its clock is the last step that all blocks
  // contain.
  std::set<SlotId> known;
  for (const BlockModel& block : blocks_) {
    for (const auto& [slot, entry] : block.ledger()) known.insert(slot);
  }
  for (const SlotId slot : known) {
    Slot& state = slots_[slot];
    state.clock = std::numeric_limits<Step>::max();
    for (const BlockModel& block : blocks_) {
      state.clock = std::min(state.clock, block.LastStep(slot));
      const auto entry = block.ledger().find(slot);
      if (entry != block.ledger().end()) {
        state.least = std::max(state.least, entry->second.incarnation);
      }
    }
    state.live = true;
    state.lease_until = world_->now() + scenario_->lease();
  }
}

BlockModel::State ServerModel::ReadState(size_t index, const ServerStatus& status) const {
  BlockModel::State state;
  const absl::StatusOr<ParameterStore::Image> image = job_->store().Read(index);
  state.initialized = image.ok();
  if (image.ok()) {
    state.version = image->version;
    const size_t elements = image->values.size() / sizeof(float);
    std::vector<float> values(elements);
    std::memcpy(values.data(), image->values.begin(), image->values.size());
    state.value = values.front();
    if (std::count(values.begin(), values.end(), state.value) !=
        static_cast<std::ptrdiff_t>(elements)) {
      world_->Violation(name_, ": the elements of block ", blocks_[index].id(),
                        " are no longer equal");
    }
  }
  for (const LedgerEntryStatus& row : status.ledger()) {
    if (row.block() != blocks_[index].id()) continue;
    LedgerEntry& entry = state.ledger[row.slot()];
    entry.incarnation = row.incarnation();
    entry.last_step = row.last_step();
    entry.applied = row.applied();
  }
  return state;
}

Step ServerModel::LastStep(SlotId slot) const {
  Step last = 0;
  for (const BlockModel& block : blocks_) last = std::max(last, block.LastStep(slot));
  return last;
}

void ServerModel::OnHello(SlotId slot, Incarnation incarnation, const HelloReply& reply) {
  Slot& state = slots_[slot];
  if (std::max(state.incarnation, state.least) > incarnation) {
    world_->Violation(name_, " accepted incarnation ", incarnation, " of slot ", slot, " after ",
                      std::max(state.incarnation, state.least));
  }
  const Step last = LastStep(slot);
  if (reply.last_step() != last) {
    world_->Violation(name_, " reported to slot ", slot, " the last step ", reply.last_step(),
                      "; it was ", last);
  }
  RaiseMinClock();
  const Incarnation holder = state.incarnation > 0 ? state.incarnation : state.least;
  if (!state.live || holder != incarnation) {
    // The last step of this incarnation that all blocks contain.
    Step own = std::numeric_limits<Step>::max();
    for (const BlockModel& block : blocks_) {
      const auto entry = block.ledger().find(slot);
      const bool is_own = entry != block.ledger().end() && entry->second.incarnation == incarnation;
      own = std::min(own, is_own ? entry->second.last_step : Step{0});
    }
    if (scenario_->synchronous()) own = std::max(own, CompletedRounds());
    state.clock = std::max(min_clock_, own);
    state.pulled = false;
  }
  state.incarnation = incarnation;
  state.live = true;
  state.lease_until = world_->now() + scenario_->lease();
  RaiseMinClock();
}

bool ServerModel::Heard(SlotId slot, Incarnation incarnation) {
  if (!IsLive(slot, incarnation)) return false;
  slots_[slot].lease_until = world_->now() + scenario_->lease();
  return true;
}

void ServerModel::OnRenew(SlotId slot, Incarnation incarnation,
                          const absl::StatusOr<RenewReply>& reply) {
  if (Heard(slot, incarnation) != reply.ok()) {
    world_->Violation(name_, reply.ok() ? " renewed" : " did not renew", " incarnation ",
                      incarnation, " of slot ", slot);
  }
  if (!reply.ok()) return;
  const Step min_clock = scenario_->synchronous() ? CompletedRounds() : min_clock_;
  Version highest = 0;
  for (const BlockModel& block : blocks_) highest = std::max(highest, block.version());
  if (reply->min_clock() > min_clock || reply->max_version() > highest) {
    world_->Violation(name_, " reports min clock ", reply->min_clock(), " and version ",
                      reply->max_version(), "; expected ", min_clock, " and ", highest);
  }
  // With whole batches this version must be exact: workers use it to decide if their gradient would
  // be refused.
  if (scenario_->whole_batches() && reply->max_version() != highest) {
    world_->Violation(name_, " reports version ", reply->max_version(), "; it is at ", highest);
  }
}

void ServerModel::OnLeave(SlotId slot, Incarnation incarnation) {
  const auto found = slots_.find(slot);
  if (found == slots_.end() || found->second.incarnation != incarnation) return;
  found->second.live = false;
  RaiseMinClock();
}

void ServerModel::OnExpiry() {
  bool any = false;
  for (auto& [slot, state] : slots_) {
    if (state.live && state.lease_until <= world_->now()) {
      state.live = false;
      any = true;
      world_->Trace(name_, ": the lease of slot ", slot, " expired");
    }
  }
  if (any) RaiseMinClock();
  leases_judged_ = true;
}

void ServerModel::OnHousekeeping(absl::Duration running_since) {
  for (const SlotId slot : patience_.Waiting()) {
    const absl::Duration due = patience_.Due(slot);
    if (running_since < due && due < world_->now()) {
      world_->Violation(name_, " did not wake up when slot ", slot, " had waited long enough");
    }
  }
  patience_.OnHousekeeping(world_->now());
}

void ServerModel::OnFrame(const PushHeader& header, const absl::Status& status) {
  // A restored server may be several rounds behind. A push of step s then shows that the slot is at
  // clock s - 1, as the first pull after Hello would.
  if (restored_ && scenario_->synchronous() && header.step > CompletedRounds() + 1 &&
      Heard(header.slot, header.incarnation)) {
    Claim(slots_[header.slot], header.step - 1);
  }
  const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const BlockModel& candidate) {
    return candidate.id() == header.block;
  });
  if (!status.ok() || block == blocks_.end()) return;
  const auto slot = slots_.find(header.slot);
  if (slot == slots_.end() || slot->second.incarnation != header.incarnation) {
    world_->Violation(name_, " took a frame of incarnation ", header.incarnation, " of slot ",
                      header.slot, ", which does not hold the slot");
  }
  if (header.step == 0) {
    block->Initialize();
  } else {
    block->Push(header, restored_);
  }
}

void ServerModel::OnPushEnd(SlotId slot, Incarnation incarnation, Step step) {
  Heard(slot, incarnation);
  if (!scenario_->whole_batches()) return;
  PatienceModel::Waits waits = PatienceModel::Waits::kNothing;
  for (const BlockModel& block : blocks_) {
    if (block.Collects({slot, incarnation, step})) {
      waits = PatienceModel::Waits::kThis;
      break;
    }
    if (block.Collects(slot)) waits = PatienceModel::Waits::kAnother;
  }
  patience_.OnPushEnd(slot, incarnation, step, waits, world_->now());
}

void ServerModel::OnAcknowledged(SlotId slot, Incarnation incarnation, Step step,
                                 const PushReply& reply) {
  acknowledged_.push_back({slot, incarnation, step, reply});
}

void ServerModel::Judge(const Acknowledged& acknowledged) {
  const auto& [slot, incarnation, step, reply] = acknowledged;
  if (step == 0) return;
  if (reply.block_size() != static_cast<int>(blocks_.size())) {
    world_->Violation(name_, " acknowledged ", reply.block_size(), " blocks of ", blocks_.size());
    return;
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].Acknowledge({slot, incarnation, step}, reply.block(static_cast<int>(i)));
  }
  if (!IsLive(slot, incarnation)) return;
  slots_[slot].clock = std::max(slots_[slot].clock, step);
  RaiseMinClock();
}

void ServerModel::OnPull(const PullRequest& request) {
  if (!Heard(request.slot(), request.incarnation())) {
    world_->Violation(name_, " accepted a pull of slot ", request.slot(), ", which is not live");
    return;
  }
  patience_.OnPull(request.slot(), world_->now());
  Claim(slots_[request.slot()], request.clock() - (request.ahead() ? 1 : 0));
}

void ServerModel::Claim(Slot& slot, Step clock) {
  if (slot.pulled) return;
  slot.pulled = true;
  if (clock <= slot.clock) return;
  slot.clock = clock;
  RaiseMinClock();
}

void ServerModel::OnGrant(SlotId slot, Step clock, Step min_clock) {
  granted_.push_back({slot, clock, min_clock});
  patience_.OnPullAnswered(slot, world_->now());
}

void ServerModel::Judge(const Granted& granted) {
  const auto& [slot, clock, min_clock] = granted;
  const Step highest = scenario_->synchronous() ? CompletedRounds() : min_clock_;
  if (min_clock > highest || min_clock < min_clock_before_) {
    world_->Violation(name_, " let slot ", slot, " read at min clock ", min_clock,
                      "; expected at most ", highest);
  }
  const int bound = Bound();
  if (bound >= 0 && clock - min_clock > bound) {
    world_->Violation(name_, " let slot ", slot, " read at clock ", clock, " and min clock ",
                      min_clock, "; the bound is ", bound);
  }
}

int ServerModel::Bound() const {
  // For whole batches the bound limits pushes, and pulls do not wait.
  if (scenario_->whole_batches()) return -1;
  return scenario_->synchronous() ? 0 : scenario_->job.consistency().staleness_bound();
}

void ServerModel::RaiseMinClock() {
  Step lowest = std::numeric_limits<Step>::max();
  for (const auto& [slot, state] : slots_) {
    if (state.live) lowest = std::min(lowest, state.clock);
  }
  if (lowest != std::numeric_limits<Step>::max()) min_clock_ = std::max(min_clock_, lowest);
}

Step ServerModel::CompletedRounds() const {
  Step rounds = std::numeric_limits<Step>::max();
  for (const BlockModel& block : blocks_) rounds = std::min(rounds, block.version());
  return rounds;
}

bool ServerModel::IsCollected(const PushHeader& push) const {
  return std::any_of(blocks_.begin(), blocks_.end(), [&](const BlockModel& block) {
    return block.id() == push.block && block.Collects({push.slot, push.incarnation, push.step});
  });
}

Version ServerModel::GetVersion(BlockId id) const {
  return std::find_if(blocks_.begin(), blocks_.end(),
                      [id](const BlockModel& block) { return block.id() == id; })
      ->version();
}

Step ServerModel::Clock(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second.clock;
}

bool ServerModel::IsLive(SlotId slot, Incarnation incarnation) const {
  const auto found = slots_.find(slot);
  return found != slots_.end() && found->second.live && found->second.incarnation == incarnation;
}

Incarnation ServerModel::SlotHolder(SlotId slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second.incarnation;
}

std::map<SlotId, Step> ServerModel::FindMissing(Step step,
                                                const std::set<SlotId>& contributors) const {
  std::map<SlotId, Step> missing;
  for (const auto& [slot, state] : slots_) {
    if (state.live && state.clock < step && contributors.count(slot) == 0) {
      missing[slot] = state.clock;
    }
  }
  return missing;
}

std::set<SlotId> ServerModel::LiveSlots() const {
  std::set<SlotId> live;
  for (const auto& [slot, state] : slots_) {
    if (state.live) live.insert(slot);
  }
  return live;
}

void ServerModel::Observe() {
  if (job_ == nullptr) return;
  BatchModel::Slots slots;
  slots.live = LiveSlots();
  slots.patience = &patience_;
  slots.now = world_->now();
  slots.is_collected = [this](SlotId slot) {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [slot](const BlockModel& block) { return block.Collects(slot); });
  };
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].Observe(
        ReadState(i, ServerStatus()),
        [this](Step step, const std::set<SlotId>& contributors) {
          return FindMissing(step, contributors);
        },
        slots);
  }
  for (const SlotId slot : patience_.Waiting()) {
    if (!slots.is_collected(slot)) patience_.OnSettled(slot, world_->now());
  }
}

void ServerModel::Check() {
  if (job_ == nullptr) return;
  Observe();
  for (const Acknowledged& acknowledged : std::exchange(acknowledged_, {})) Judge(acknowledged);
  for (const Granted& granted : std::exchange(granted_, {})) Judge(granted);
  min_clock_before_ = scenario_->synchronous() ? CompletedRounds() : min_clock_;
  CheckWaits();
  if (leases_judged_ && scenario_->whole_batches()) CheckUpdateCounts();
  leases_judged_ = false;
}

BlockModel::Updates ServerModel::updates() const {
  BlockModel::Updates all = past_updates_;
  if (job_ == nullptr) return all;
  for (const BlockModel& block : blocks_) {
    all.made += block.updates().made;
    all.early += block.updates().early;
  }
  return all;
}

void ServerModel::CheckUpdateCounts() const {
  ServerStatus status;
  job_->Describe(/*include_ledger=*/false, &status);
  const uint64_t made = updates().made - past_updates_.made;
  const uint64_t early = updates().early - past_updates_.early;
  if (status.block_updates() == made && status.early_block_updates() == early) return;
  world_->Violation(name_, " counts ", status.block_updates(), " updates, ",
                    status.early_block_updates(), " of them early; it made ", made, ", ", early,
                    " of them early");
}

bool ServerModel::IsOver() const { return job_ == nullptr || LiveSlots().empty(); }

void ServerModel::CheckEnd() const {
  if (job_ == nullptr) return;
  for (const BlockModel& block : blocks_) {
    if (!block.collects_nothing()) {
      world_->Violation("the job is over, and block ", block.id(), " still holds collected pushes");
    }
  }
}

}  // namespace torchps::simulation
