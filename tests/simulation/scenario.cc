#include "tests/simulation/scenario.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/job/job_spec.h"

namespace torchps::simulation {
namespace {

uint64_t Hash(SlotId slot, Incarnation incarnation, Step step, BlockId block) {
  uint64_t state = static_cast<uint64_t>(slot) << 48 ^ incarnation << 24 ^
                   static_cast<uint64_t>(step) << 8 ^ block;
  SplitMix64(state);
  return SplitMix64(state);
}

// Returns the mean time between two faults of a kind: in 6 of 10 draws between `low` and `high`,
// otherwise infinite. Seeds that lack some kinds of faults find other errors.
absl::Duration Sometimes(World* world, absl::Duration low, absl::Duration high) {
  return world->Chance(0.6) ? world->Between(low, high) : absl::InfiniteDuration();
}

void DrawWholeBatches(World* world, ConsistencySpec* consistency) {
  consistency->set_apply(ConsistencySpec::WHOLE_BATCH);
  constexpr int kBounds[] = {-1, 0, 1, 2};
  consistency->set_staleness_bound(kBounds[world->Below(4)]);
  consistency->set_patience(0.5 + 1.5 * UnitDouble(world->Draw()));
}

// Draws global or per-slot batches, shared equally or by speed. Some shares are below two samples:
// such a batch must be complete (BatchModel::Slack()).
void DrawBatches(World* world, TrainingSpec* training) {
  training->set_batch_size(4 + 4 * static_cast<int>(world->Below(4)));
  training->set_global_batch(world->Chance(0.6));
  if (world->Chance(0.5)) training->set_balance(TrainingSpec::SPEED);
  if (world->Chance(0.2)) training->set_accumulate(2);
}

void DrawConsistency(World* world, ConsistencySpec* consistency, int workers) {
  if (world->Chance(0.4)) consistency->set_stop_stale(false);
  if (world->Chance(0.35)) {
    consistency->set_mode(ConsistencySpec::SYNC);
    consistency->set_backup_workers(workers > 1 && world->Chance(0.4) ? 1 : 0);
    if (consistency->backup_workers() > 0) {
      consistency->set_grace_part(world->Chance(0.5) ? UnitDouble(world->Draw()) : 0);
    }
    return;
  }
  consistency->set_mode(ConsistencySpec::ASYNC);
  if (world->Chance(0.5)) {
    DrawWholeBatches(world, consistency);
    return;
  }
  consistency->set_apply(ConsistencySpec::EACH_PUSH);
  constexpr int kBounds[] = {-1, 0, 1, 2, 4};
  consistency->set_staleness_bound(kBounds[world->Below(5)]);
  if (consistency->staleness_bound() != 0) consistency->set_prefetch(world->Chance(0.5));
  LagContract* const lag = consistency->mutable_lag();
  switch (world->Below(3)) {
    case 0:
      lag->set_policy(LagContract::ACCEPT);
      break;
    case 1:
      lag->set_policy(LagContract::WEIGH);
      lag->set_free_lag(1 + static_cast<int64_t>(world->Below(3)));
      break;
    default:
      lag->set_policy(LagContract::REJECT);
      lag->set_max_lag(1 + static_cast<int64_t>(world->Below(4)));
  }
}

// The servers compute the momentum, because simulated workers do not do arithmetic.
void DrawMomentum(World* world, SgdSpec* sgd) {
  if (world->Chance(0.4)) return;
  // Halves of small integers stay exact for many steps.
  sgd->set_momentum(0.5);
  sgd->set_momentum_at(SgdSpec::SERVER);
  sgd->set_nesterov(world->Chance(0.5));
}

// Turns off the other faults of processes and connections. A zombie (Scenario::zombies) needs a
// long sequence of events, which those faults would usually interrupt.
void LeaveToZombies(Scenario* scenario) {
  for (absl::Duration* const trouble :
       {&scenario->worker_deaths, &scenario->worker_freezes, &scenario->worker_leaves,
        &scenario->worker_asides, &scenario->server_deaths, &scenario->server_freezes,
        &scenario->partings, &scenario->resets}) {
    *trouble = absl::InfiniteDuration();
  }
}

}  // namespace

Scenario Scenario::Draw(World* world) {
  Scenario scenario;
  scenario.servers = 1 + static_cast<int>(world->Below(3));
  JobSpec job;
  job.set_name("simulated");
  job.set_workers(1 + static_cast<int>(world->Below(4)));
  scenario.seats = job.workers() + static_cast<int>(world->Below(2));
  job.mutable_model()->set_name("integers");
  TrainingSpec* const training = job.mutable_training();
  training->set_epochs(1 + static_cast<int>(world->Below(2)));
  training->set_batch_size(4);
  training->set_balance(TrainingSpec::EQUAL);
  training->set_global_batch(false);
  training->set_evaluate(world->Chance(0.7));
  job.mutable_optimizer()->mutable_sgd();
  job.mutable_optimizer()->set_learning_rate(1);
  DrawConsistency(world, job.mutable_consistency(), job.workers());
  DrawMomentum(world, job.mutable_optimizer()->mutable_sgd());
  const bool whole_batches = job.consistency().apply() == ConsistencySpec::WHOLE_BATCH;
  if (whole_batches) {
    DrawBatches(world, training);
  } else if (job.consistency().mode() == ConsistencySpec::ASYNC) {
    training->set_lease_batches(1 + static_cast<int>(world->Below(4)));
  }
  if (world->Chance(0.2)) training->set_max_pushes(5 + static_cast<int64_t>(world->Below(20)));
  job.mutable_wire()->set_block_bytes(64);
  job.mutable_wire()->set_shared_memory(false);
  job.mutable_membership()->set_lease_seconds(1 + static_cast<double>(world->Below(3)));
  DurabilitySpec* const durability = job.mutable_durability();
  durability->set_level(world->Chance(0.2)   ? DurabilitySpec::NONE
                        : world->Chance(0.5) ? DurabilitySpec::LOG
                                             : DurabilitySpec::CHECKPOINT);
  if (durability->level() != DurabilitySpec::NONE) {
    durability->set_checkpoint_seconds(0.3 + 3 * UnitDouble(world->Draw()));
    durability->set_keep(1 + static_cast<int>(world->Below(3)));
    if (world->Chance(0.3)) {
      durability->set_checkpoint_steps(1 + static_cast<int64_t>(world->Below(6)));
    }
  }
  const absl::StatusOr<JobSpec> normal = NormalizeJobSpec(job);
  TPS_CHECK(normal.ok(), normal.status().ToString().c_str());
  scenario.job = *normal;
  scenario.train_samples = 20 + static_cast<int64_t>(world->Below(80));
  if (!whole_batches && scenario.train_samples % 5 < 2) {
    scenario.job.mutable_training()->set_balance(TrainingSpec::SPEED);
    scenario.job.mutable_training()->set_global_batch(scenario.train_samples % 2 == 0);
    scenario.job = *NormalizeJobSpec(scenario.job);
  }
  // BFLOAT16 is exact for the simulation's gradients, which are small integers.
  if (scenario.train_samples % 3 == 0) {
    scenario.job.mutable_wire()->mutable_push()->set_kind(EncodingSpec::BFLOAT16);
  }

  Segment weights;
  weights.name = "w";
  weights.shape = {static_cast<int64_t>(scenario.servers) + static_cast<int64_t>(world->Below(60))};
  const absl::StatusOr<ModelLayout> layout = ModelLayout::Create({weights});
  TPS_CHECK(layout.ok(), layout.status().ToString().c_str());
  scenario.layout = *layout;
  const absl::StatusOr<BlockMap> map =
      BlockMap::Create(scenario.layout, scenario.job.wire().block_bytes(), scenario.servers);
  TPS_CHECK(map.ok(), map.status().ToString().c_str());
  scenario.map = *map;

  const double badness = world->Chance(0.15) ? 0 : UnitDouble(world->Draw());
  scenario.weather.loss = 0.03 * badness;
  scenario.weather.doubling = 0.1 * badness;
  scenario.weather.stray = 0.05 * badness;
  scenario.weather.latency = world->Between(absl::Microseconds(200), absl::Milliseconds(20));
  scenario.weather.longest = world->Between(absl::Milliseconds(50), absl::Seconds(4));
  scenario.worker_deaths = Sometimes(world, absl::Milliseconds(500), absl::Seconds(8));
  scenario.worker_freezes = Sometimes(world, absl::Seconds(1), absl::Seconds(8));
  scenario.worker_leaves = Sometimes(world, absl::Seconds(2), absl::Seconds(16));
  scenario.worker_asides = Sometimes(world, absl::Milliseconds(500), absl::Seconds(8));
  scenario.server_freezes = Sometimes(world, absl::Seconds(1), absl::Seconds(8));
  scenario.partings = Sometimes(world, absl::Seconds(1), absl::Seconds(8));
  scenario.resets = Sometimes(world, absl::Milliseconds(200), absl::Seconds(4));
  if (scenario.durable()) {
    if (world->Chance(0.5)) {
      scenario.zombies = world->Between(absl::Milliseconds(200), absl::Seconds(2));
    }
    scenario.server_deaths = Sometimes(world, absl::Milliseconds(500), absl::Seconds(6));
    scenario.shares_directory = world->Chance(0.4);
    if (!scenario.shares_directory && world->Chance(0.7)) {
      scenario.power_cuts = UnitDouble(world->Draw());
    }
    scenario.disk_errors = world->Chance(0.3) ? 0.02 * UnitDouble(world->Draw()) : 0;
    if (world->Chance(0.2)) {
      scenario.full_disks = world->Between(absl::Seconds(1), absl::Seconds(8));
    }
    scenario.deaths_in_writing = world->Chance(0.3) ? 0.005 * UnitDouble(world->Draw()) : 0;
  }
  if (scenario.zombies != absl::InfiniteDuration() && world->Chance(0.8)) LeaveToZombies(&scenario);
  scenario.heals_at = world->Between(absl::Seconds(4), absl::Seconds(20));
  scenario.fastest_step = world->Between(absl::Milliseconds(5), absl::Milliseconds(100));
  scenario.slowest_step = scenario.fastest_step * (1 + 5 * UnitDouble(world->Draw()));
  if (scenario.logs() && world->Chance(0.3)) {
    scenario.small_disks_at = world->Between(absl::Seconds(1), absl::Seconds(6));
    scenario.log_room = 1000 + static_cast<int64_t>(world->Below(10000));
  } else if (scenario.durable() && scenario.servers > 1 && !scenario.shares_directory &&
             world->Chance(0.5)) {
    scenario.job.mutable_durability()->set_copies(1);
    scenario.disk_losses = Sometimes(world, absl::Milliseconds(500), absl::Seconds(4));
  }
  return scenario;
}

std::string Scenario::Describe() const {
  return absl::StrCat(
      servers, " servers, ", seats, " workers (", job.workers(), " expected), ",
      map.blocks().size(), " blocks, ", train_samples, " samples, batches of ",
      job.training().batch_size(), " x ", job.training().accumulate(),
      job.training().global_batch() ? " in total" : " per slot", ", ",
      TrainingSpec::Balance_Name(job.training().balance()), ", ",
      job.optimizer().sgd().ShortDebugString(), ", ", job.consistency().ShortDebugString(), ", ",
      job.durability().ShortDebugString(), shares_directory ? " in one directory" : "",
      ", heals at ", absl::FormatDuration(heals_at));
}

float GetGradient(SlotId slot, Incarnation incarnation, Step step, BlockId block) {
  const auto value = static_cast<int>(Hash(slot, incarnation, step, block) % 126) - 63;
  return static_cast<float>(value == 0 ? 63 : value);
}

bool IsWithheld(SlotId slot, Incarnation incarnation, Step step, BlockId block) {
  return block > 0 && Hash(slot, incarnation, step, block) >> 58 == 0;
}

bool IsAbsent(SlotId slot, Incarnation incarnation, Step step, BlockId block) {
  return !IsWithheld(slot, incarnation, step, block) &&
         (Hash(slot, incarnation, step, block) >> 48 & 15) == 0;
}

uint32_t GetWeight(SlotId slot, Step step) {
  return 1 + static_cast<uint32_t>((static_cast<uint64_t>(step) + static_cast<uint64_t>(slot)) % 4);
}

}  // namespace torchps::simulation
