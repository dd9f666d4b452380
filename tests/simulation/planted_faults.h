#pragma once

#include <map>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "server/store/parameter_store.h"
#include "tests/simulation/scenario.h"
#include "wire/frame_codec.h"
#include "wire/frame_payload.h"

namespace torchps::simulation {

// Faults planted in a server's blocks. The product has no hooks for them: each function changes a
// copy of a block and restores the block from it.

// The block forgets that it has seen a step of a slot, as if its ledger were not asked
// (kSkipLedgerCheck).
void ForgetStep(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot, Step step);

// The slot's ledger entry becomes this incarnation's, as if ledgers kept none (kIgnoreIncarnation).
void ForgetIncarnation(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot,
                       Incarnation incarnation);

// Every block forgets its whole ledger (kForgetLedgerOnRestore).
void ForgetLedgers(const Clock* clock, ParameterStore* store);

// The pushes that a server's blocks have collected for their next updates, recorded outside the
// product to plant kApplyWholeMean and kKeepSum.
//
// Not thread-safe.
class CollectedPushes {
 public:
  explicit CollectedPushes(const Scenario* scenario) : scenario_(scenario) {}

  // A block has collected this push, or has recognised a repeat of a collected one.
  void OnPush(const PushHeader& header);
  // Finds the blocks that were updated since the last call. With `gives_whole_mean` it changes
  // their values as if the update were not early. REQUIRES then: no momentum.
  void OnUpdates(const Clock* clock, ParameterStore* store, bool gives_whole_mean);
  // Gives the blocks of a restarted server their old sums, without ledger entries.
  void Rewind(const Clock* clock, ParameterStore* store);

 private:
  struct Block {
    Version version = 0;
    float value = 0;  // of every element
    std::vector<PushHeader> pushes;
  };

  const Scenario* const scenario_;
  std::map<BlockId, Block> blocks_;
};

// The payload of a simulated push: all elements are equal.
FramePayload ReadPayload(const Scenario& scenario, const PushHeader& header);

}  // namespace torchps::simulation
