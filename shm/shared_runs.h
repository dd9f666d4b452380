#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/block_map.h"
#include "common/ids.h"

namespace torchps {

// The order in which one try of a push names the blocks of one server that reads them from shared
// memory: each frame names a run of blocks that follow each other on the server, are ready and were
// computed on one version. Every block once.
//
// Not thread-safe.
class SharedRuns {
 public:
  // Addresses in BlockMap::owned_by: [begin, end), not empty.
  struct Run {
    size_t begin = 0;
    size_t end = 0;
  };

  // What a frame names at most, but for one block that is larger. Long enough that a frame's cost
  // does not show beside the apply (some 20 us to 1 ms), short enough that the server's thread soon
  // turns to the next worker's.
  static constexpr int64_t kMaxRunBytes = int64_t{8} << 20;

  // `map` is borrowed.
  SharedRuns(const BlockMap* map, int server);

  // The next run among the blocks that are ready and were not in a run yet; nothing where there is
  // none. A block that is `alone`, which none is by default, is a run by itself. All arguments by
  // block, and for all calls the same but that more becomes ready.
  std::optional<Run> Next(const std::vector<bool>& is_ready, const std::vector<Version>& versions,
                          const std::vector<bool>& alone = {});

  // Every block was in a run.
  bool done() const { return left_ == 0; }

 private:
  const BlockMap& map_;
  const std::vector<BlockId>& owned_;
  std::vector<bool> taken_;  // by index into owned_
  size_t left_;
  // Where the last run ended: the search begins here, as backward() makes neighbours ready
  // together.
  size_t next_ = 0;
};

}  // namespace torchps
