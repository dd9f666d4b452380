#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/simulation/network.h"
#include "tests/simulation/world.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps::simulation {

// Bugs that the simulator can plant in a server, to test that it finds them.
enum class Fault {
  kNone,
  kSkipLedgerCheck,        // a repeated push is applied again
  kAcknowledgeEarly,       // a push is acknowledged before it is applied
  kForgetLedgerOnRestore,  // a restarted server does not know which pushes the values contain
  kCountDeadSlot,          // a dead slot's clock blocks the other slots forever
  kIgnoreIncarnation,      // a push is identified by slot and step only
  kTakeLateGradient,       // a gradient of an earlier round is added to the current round
  kScheduleRunsOut,        // the reported job progress is too high
  kLoseSamples,            // samples count as used although their gradient was refused
  kDropLease,              // samples that a dead worker held count as used
  // Only for whole batches:
  kTakeOldGradient,       // a gradient older than the bound is added to the next update
  kApplyWholeMean,        // an early update applies the whole mean, not its part of a batch
  kAcknowledgeCollected,  // a push is acknowledged when it is collected, before the update
  kKeepSum,               // collected gradients survive a restart, but not their ledger entries
  // Only with copies:
  kConfirmLostCopy,  // a server confirms a copy of log records that it does not store
};

// Everything that a seed determines: the job, the processes and the faults.
struct Scenario {
  JobSpec job;  // normalized
  ModelLayout layout;
  BlockMap map;
  int64_t train_samples = 0;
  int servers = 1;
  int seats = 1;  // concurrent worker processes; at least job.workers

  Network::Weather weather;
  // Mean times between two faults of a kind, over all processes. Infinite: never.
  absl::Duration worker_deaths = absl::InfiniteDuration();
  absl::Duration worker_freezes = absl::InfiniteDuration();
  absl::Duration worker_leaves = absl::InfiniteDuration();
  // The worker leaves the servers' clocks and returns with the next call, like a worker that hangs
  // or is cut off.
  absl::Duration worker_asides = absl::InfiniteDuration();
  // A worker freezes until another worker holds its slot, and thaws when a server restarted.
  absl::Duration zombies = absl::InfiniteDuration();
  absl::Duration server_deaths = absl::InfiniteDuration();
  // Fraction of the server deaths that are power cuts of the machine.
  double power_cuts = 0;
  // With durability.copies: a server dies and loses its disk or one sector. Never the first server.
  absl::Duration disk_losses = absl::InfiniteDuration();
  // True if all servers keep their state in one directory, as with `psctl run`.
  bool shares_directory = false;
  // Fraction of the disk operations that fail, and fraction during which the process dies.
  double disk_errors = 0;
  double deaths_in_writing = 0;
  absl::Duration full_disks = absl::InfiniteDuration();
  // From this time on, each disk has room for the next checkpoint and for `log_room` bytes of push
  // logs. Infinite: the disks are large.
  absl::Duration small_disks_at = absl::InfiniteDuration();
  int64_t log_room = 0;
  absl::Duration server_freezes = absl::InfiniteDuration();
  absl::Duration partings = absl::InfiniteDuration();
  absl::Duration resets = absl::InfiniteDuration();
  // There are no faults after this time, and the job must end.
  absl::Duration heals_at;
  // The step times of the fastest and the slowest seat.
  absl::Duration fastest_step;
  absl::Duration slowest_step;

  static Scenario Draw(World* world);

  absl::Duration lease() const { return absl::Seconds(job.membership().lease_seconds()); }
  bool logs() const { return job.durability().level() == DurabilitySpec::LOG; }
  bool copies() const { return job.durability().copies() > 0; }
  bool durable() const { return job.durability().level() != DurabilitySpec::NONE; }
  bool synchronous() const { return job.consistency().mode() == ConsistencySpec::SYNC; }
  // True for ASYNC with apply WHOLE_BATCH.
  bool whole_batches() const {
    return !synchronous() && job.consistency().apply() == ConsistencySpec::WHOLE_BATCH;
  }
  // True if pushes are summed before they are applied. Each lease is then one push.
  bool collects() const { return synchronous() || whole_batches(); }
  // Returns a short description for traces.
  std::string Describe() const;
};

// Returns the elements of a gradient on a block; they are all equal. The element is a small integer
// except 0. So sums are exact, and one lost or doubled push is visible. Different incarnations of a
// slot compute different gradients, as in real jobs.
float GetGradient(SlotId slot, Incarnation incarnation, Step step, BlockId block);
// True if the worker's gradient of this block is not finite. Never true for all blocks of a step.
bool IsWithheld(SlotId slot, Incarnation incarnation, Step step, BlockId block);
// True if the step did not reach the block's parameters. The gradient is then neither sent nor
// withheld.
bool IsAbsent(SlotId slot, Incarnation incarnation, Step step, BlockId block);
// Returns the number of samples of a gradient. For whole batches the lease determines this number
// instead.
uint32_t GetWeight(SlotId slot, Step step);

}  // namespace torchps::simulation
