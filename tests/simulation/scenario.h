#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"
#include "tests/simulation/network.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {

// A mistake that a server could make, planted to see that the simulator finds it.
enum class Fault {
  kNone,
  kSkipLedgerCheck,        // a repeated push is taken for a new one
  kAcknowledgeEarly,       // a push is answered before it is applied
  kForgetLedgerOnRestore,  // a server comes back without knowing what its values contain
  kCountDeadSlot,          // a dead slot's clock holds the others back for ever
  kIgnoreIncarnation,      // a push is named by slot and step alone, whoever made it
  kTakeLateGradient,       // a gradient of a round that is over is taken into the present one
  kScheduleRunsOut,        // the job is said to be further than it is
  kLoseSamples,            // samples whose gradient changed nothing count as used
  kDropLease,              // samples that a dead worker had in hand count as used
  // With whole batches:
  kTakeOldGradient,       // a gradient older than the bound is merged into the next update
  kApplyWholeMean,        // an early update takes its whole mean instead of its part of a batch
  kAcknowledgeCollected,  // a push is answered when all of it is collected, before its update
  kKeepSum,               // what was collected outlives a restart, without its ledger entries
};

// What one seed draws: a job, its processes, and all that goes wrong.
struct Scenario {
  JobSpec job;  // normalised
  ModelLayout layout;
  BlockMap map;
  int64_t train_samples = 0;
  int servers = 1;
  int seats = 1;  // worker processes at a time; job.workers at least

  Network::Weather weather;
  // Mean time from one to the next, over all processes of the kind; infinite: never.
  absl::Duration worker_deaths = absl::InfiniteDuration();
  absl::Duration worker_freezes = absl::InfiniteDuration();
  absl::Duration worker_leaves = absl::InfiniteDuration();
  // A worker leaves the servers' clocks and is back with its next call, as one that is cut off or
  // hangs.
  absl::Duration worker_asides = absl::InfiniteDuration();
  // A worker is frozen until another one has its slot, and thaws when a server has come back.
  absl::Duration zombies = absl::InfiniteDuration();
  absl::Duration server_deaths = absl::InfiniteDuration();
  // Part of a server's deaths in which its machine goes with it.
  double power_cuts = 0;
  // All servers keep what they have in one directory, as `psctl run` has it.
  bool shares_directory = false;
  // Of the operations that change a disk: that fail, and that are their process's last.
  double disk_errors = 0;
  double deaths_in_writing = 0;
  absl::Duration full_disks = absl::InfiniteDuration();
  absl::Duration server_freezes = absl::InfiniteDuration();
  absl::Duration partings = absl::InfiniteDuration();
  absl::Duration resets = absl::InfiniteDuration();
  // From here on nothing goes wrong any more, and the job has to come to its end.
  absl::Duration heals_at;
  // One step of the fastest and of the slowest seat.
  absl::Duration fastest_step;
  absl::Duration slowest_step;

  static Scenario Draw(World* world);

  absl::Duration lease() const { return absl::Seconds(job.membership().lease_seconds()); }
  bool logs() const { return job.durability().level() == DurabilitySpec::LOG; }
  bool durable() const { return job.durability().level() != DurabilitySpec::NONE; }
  bool synchronous() const { return job.consistency().mode() == ConsistencySpec::SYNC; }
  // ASYNC with apply WHOLE_BATCH.
  bool whole_batches() const {
    return !synchronous() && job.consistency().apply() == ConsistencySpec::WHOLE_BATCH;
  }
  // Pushes are summed up before they are applied, and a lease is one push.
  bool collects() const { return synchronous() || whole_batches(); }
  // In a few words, for a trace.
  std::string Describe() const;
};

// Every element of the gradient (slot, incarnation, step) on a block: a small integer other than 0,
// so that sums are exact and one lost or doubled push shows. Another holder of the same slot has
// another gradient, as in life.
float GetGradient(SlotId slot, Incarnation incarnation, Step step, BlockId block);
// Whether the worker has no finite gradient of this block; never all blocks of a step.
bool IsWithheld(SlotId slot, Incarnation incarnation, Step step, BlockId block);
// Whether the step has not reached this block's parameters: no gradient, and not withheld either.
bool IsAbsent(SlotId slot, Incarnation incarnation, Step step, BlockId block);
// Samples of the gradient. With whole batches the lease says that instead.
uint32_t GetWeight(SlotId slot, Step step);

}  // namespace torchps::simulation
