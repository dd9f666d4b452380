#pragma once

#include <string>
#include <vector>

#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"

namespace torchps {

// The job that is pushed at under a nemesis. Its gradients are such that a block's values tell
// which pushes are in it: each slot has counters of its own in every block, of steps by their
// remainder modulo two numbers, and a push adds one to two of them. Counts of floats are exact, so
// one lost or doubled push shows.
struct NemesisJob {
  static constexpr int kServers = 2;
  static constexpr int kSlots = 3;
  static constexpr int kBlocks = 6;
  static constexpr int kModulus[] = {128, 127};
  static constexpr int kCounters = kModulus[0] + kModulus[1];
  // Nobody gets further ahead than this, so a slot that stands still is soon waited for.
  static constexpr int kStalenessBound = 16;
  static constexpr int kLeaseSeconds = 1;
  // Of a worker that computes.
  static constexpr int kBatch = 4;
  // What a worker exits with whose device's link has failed.
  static constexpr int kBrokenLink = 64;
  static constexpr int kBlockElements = kSlots * kCounters + 3;  // in whole lines of cache

  JobSpec spec;
  ModelLayout layout;
  BlockMap map;

  // What comes by its time: checkpoints twice a second and the end of a killed worker's lease after
  // one; or neither within a test, however busy the machine is, and then nobody waits for anybody.
  enum class Pace { kHurried, kCalm };
  // How gradients get to the servers. In INT8 they are kUnitOfInt8 times as large: then a group's
  // scale is 1, and nothing is lost.
  enum class Carriage { kFloats, kInt8, kSharedMemory };
  static constexpr int kUnitOfInt8 = 127;
  // What makes an update. Of whole batches each has two pushes: so half of their sum is applied at
  // a rate of 2, counts stay whole numbers, and the third slot is late.
  enum class Rule { kEachPush, kWholeBatch };
  static constexpr int kPushWeight = 2;
  static NemesisJob Create(DurabilitySpec::Level level, Pace pace = Pace::kHurried,
                           Carriage carriage = Carriage::kFloats, Rule rule = Rule::kEachPush);

  // What a counter goes up by.
  static constexpr int Unit(Carriage carriage) {
    return carriage == Carriage::kInt8 ? kUnitOfInt8 : 1;
  }

  // Of a block, the gradient named (slot, step), in units.
  static std::vector<float> Gradient(SlotId slot, Step step);
  // Where in a block steps of `slot` with this remainder are counted.
  static int Counter(SlotId slot, int modulus, int remainder) {
    return slot * kCounters + (modulus == 0 ? 0 : kModulus[0]) + remainder;
  }
};

}  // namespace torchps
