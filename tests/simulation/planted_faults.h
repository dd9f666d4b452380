#pragma once

#include <map>
#include <vector>

#include "tests/simulation/scenario.h"
#include "torchps/common/clock.h"
#include "torchps/common/types.h"
#include "torchps/server/store/parameter_store.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/frame_payload.h"

namespace torchps::simulation {

// Functions that plant faults in a server's blocks. The server code does not contain hooks for
// them: each function changes a copy of a block and restores the block from the copy. The names in
// parentheses are values of Fault (scenario.h).

// Makes the block forget a step of a slot, as if the server did not check the ledger
// (kSkipLedgerCheck).
void ForgetStep(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot, Step step);

// Sets the incarnation in the slot's ledger entry, as if ledgers did not record it
// (kIgnoreIncarnation).
void ForgetIncarnation(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot,
                       Incarnation incarnation);

// Clears the ledgers of all blocks (kForgetLedgerOnRestore).
void ForgetLedgers(const Clock* clock, ParameterStore* store);

// Records the pushes that a server's blocks collected for the next updates, outside the server
// code. Used to plant kApplyWholeMean and kKeepSum.
//
// Not thread-safe.
class CollectedPushes {
 public:
  explicit CollectedPushes(const Scenario* scenario) : scenario_(scenario) {}

  // Reports that a block collected this push, or recognized a repeat of a collected push.
  void OnPush(const PushHeader& header);
  // Finds the blocks that were updated since the last call. If `gives_whole_mean`, changes their
  // values as if the update were not early. REQUIRES in that case: momentum is 0.
  void OnUpdates(const Clock* clock, ParameterStore* store, bool gives_whole_mean);
  // Puts the collected gradients back into the blocks of a restarted server, without their ledger
  // entries.
  void Rewind(const Clock* clock, ParameterStore* store);

 private:
  struct Block {
    Version version = 0;
    float value = 0;  // of each element
    std::vector<PushHeader> pushes;
  };

  const Scenario* const scenario_;
  std::map<BlockId, Block> blocks_;
};

// Returns the payload of a simulated push. All elements are equal.
FramePayload ReadPayload(const Scenario& scenario, const PushHeader& header);

}  // namespace torchps::simulation
