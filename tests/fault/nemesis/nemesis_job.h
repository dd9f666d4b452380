#pragma once

#include <string>
#include <vector>

#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Describes the job of the nemesis tests. The values of a block show which pushes were applied.
// Each slot owns counters in each block, one for each remainder modulo 128 and one for each
// remainder modulo 127. The push of step s adds one to the counters of s mod 128 and s mod 127.
// Floats count exactly, so one lost or doubled push is visible.
struct NemesisJob {
  static constexpr int kServers = 2;
  static constexpr int kSlots = 3;
  static constexpr int kBlocks = 6;
  static constexpr int kModulus[] = {128, 127};
  static constexpr int kCounters = kModulus[0] + kModulus[1];
  // Other slots soon wait for a slot that stalls, because they can be ahead by only this many
  // steps.
  static constexpr int kStalenessBound = 16;
  static constexpr int kLeaseSeconds = 1;
  // Samples in a batch of the workers that train a module, and in a whole batch of
  // Rule::kWholeBatch.
  static constexpr int kBatch = 4;
  // Exit code of a worker after its device's link failed.
  static constexpr int kBrokenLink = 64;
  static constexpr int kBlockElements = kSlots * kCounters + 3;  // a multiple of a cache line

  JobSpec spec;
  ModelLayout layout;
  BlockMap map;

  // kHurried: two checkpoints per second, and leases expire after one second. kCalm: a test sees no
  // periodic checkpoint and no expired lease, even on a busy machine, and slots do not wait for
  // each other.
  enum class Pace { kHurried, kCalm };
  // The encoding and transport of gradients. In INT8 they are kUnitOfInt8 times as large, so each
  // group's scale is 1 and the encoding is exact.
  enum class Carriage { kFloats, kInt8, kSharedMemory };
  static constexpr int kUnitOfInt8 = 127;
  // When the servers update a block. kWholeBatch: each batch contains two pushes, and half of their
  // sum is applied at a learning rate of 2. So the counts stay whole numbers. The third slot's push
  // is too late for the batch.
  enum class Rule { kEachPush, kWholeBatch };
  static constexpr int kPushWeight = 2;
  static NemesisJob Create(DurabilitySpec::Level level, Pace pace = Pace::kHurried,
                           Carriage carriage = Carriage::kFloats, Rule rule = Rule::kEachPush);

  // The amount that a push adds to a counter.
  static constexpr int Unit(Carriage carriage) {
    return carriage == Carriage::kInt8 ? kUnitOfInt8 : 1;
  }

  // Returns a block's gradient for `slot` and `step`, in units.
  static std::vector<float> Gradient(SlotId slot, Step step);
  // Returns the index in a block of the slot's counter for steps with this remainder.
  static int Counter(SlotId slot, int modulus, int remainder) {
    return slot * kCounters + (modulus == 0 ? 0 : kModulus[0]) + remainder;
  }
};

}  // namespace torchps
