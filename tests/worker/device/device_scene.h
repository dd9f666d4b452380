#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/worker/device/fake_link.h"
#include "torchps/common/block_map.h"
#include "torchps/common/hash.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"

// Helpers for tests of device copies. They draw random models and choices from a seed, and repeat a
// test with an error at any operation.

namespace torchps {

// Draws random numbers from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}

  uint64_t Below(uint64_t bound) { return UniformBelow(state_, bound); }
  bool Chance(double part) { return UnitDouble(SplitMix64(state_)) < part; }

  template <typename T>
  void Shuffle(std::vector<T>* items) {
    for (size_t i = items->size(); i > 1; --i) std::swap((*items)[i - 1], (*items)[Below(i)]);
  }

  // Advances the device by up to three steps.
  void MaybeStep(FakeLink* link) {
    for (uint64_t steps = Below(4); steps > 0 && link->Step(); --steps) {
    }
  }

 private:
  uint64_t state_;
};

// Draws a small model of several blocks, perhaps with averaged blocks.
inline ModelLayout DrawLayout(Draw* draw) {
  std::vector<Segment> segments(1);
  segments[0].name = "w";
  segments[0].shape = {static_cast<int64_t>(1 + draw->Below(40))};
  if (draw->Chance(0.5)) {
    Segment averaged;
    averaged.name = "mean";
    averaged.shape = {static_cast<int64_t>(1 + draw->Below(9))};
    averaged.averaged = true;
    segments.push_back(averaged);
  }
  return *ModelLayout::Create(segments);
}

inline BlockMap DrawMap(const ModelLayout& layout, Draw* draw) {
  return *BlockMap::Create(layout, static_cast<int64_t>(4 * (1 + draw->Below(8))), /*servers=*/1);
}

// Describes a backward pass: the order in which the pass writes the trained blocks, the position at
// which the push begins, and the position at which the step is dropped. Positions equal to the
// number of blocks are after the last block.
struct DrawnPass {
  std::vector<BlockId> blocks;
  uint64_t opens_at = 0;
  std::optional<uint64_t> drops_at;
};

inline DrawnPass DrawPass(const BlockMap& map, Draw* draw) {
  DrawnPass pass;
  for (const BlockRange& block : map.blocks()) {
    if (!block.averaged) pass.blocks.push_back(block.id);
  }
  draw->Shuffle(&pass.blocks);
  pass.opens_at = draw->Below(pass.blocks.size() + 1);
  if (draw->Chance(0.2)) pass.drops_at = draw->Below(pass.blocks.size() + 1);
  return pass;
}

// The result of a scene.
struct SceneOutcome {
  // The statuses of the calls that can fail, in call order.
  std::vector<absl::Status> statuses;
  int64_t operations = 0;
};

// Plays the scene of `seed`, that is Scene(seed, /*fail_at=*/-1).Play(), which must succeed. Plays
// it again with one failing operation, which the seed selects. Checks that the failure causes a
// single error, which each later call returns.
template <typename Scene>
void PlayWithAnError(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const SceneOutcome whole = Scene(seed, /*fail_at=*/-1).Play();
  for (const absl::Status& status : whole.statuses) ASSERT_TRUE(status.ok()) << status;

  uint64_t state = seed;
  const auto fail_at = static_cast<int64_t>(UniformBelow(state, whole.operations));
  SCOPED_TRACE("operation " + std::to_string(fail_at) + " fails");
  const SceneOutcome failed = Scene(seed, fail_at).Play();
  const std::string message = "operation " + std::to_string(fail_at) + " has failed";
  bool has_failed = false;
  for (const absl::Status& status : failed.statuses) {
    ASSERT_FALSE(has_failed && status.ok());
    has_failed = !status.ok();
    ASSERT_EQ(status, has_failed ? absl::InternalError(message) : absl::OkStatus());
  }
}

// Runs PlayWithAnError() for the seeds from 1. TORCHPS_DEVICE_SEEDS sets the number of seeds
// (default 10,000).
template <typename Scene>
void PlaySeeds() {
  uint64_t seeds = 10000;
  if (const char* const wanted = std::getenv("TORCHPS_DEVICE_SEEDS"); wanted != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wanted, &seeds)) << "TORCHPS_DEVICE_SEEDS=" << wanted;
  }
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    PlayWithAnError<Scene>(seed);
  }
  std::printf("%lu seeds\n", seeds);
}

}  // namespace torchps
