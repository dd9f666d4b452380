#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/block_map.h"
#include "common/ids.h"

namespace torchps {

// Selects the order in which a push attempt names the blocks of a server that reads from shared
// memory. Each frame names a run of blocks that are consecutive on the server, ready, and computed
// on the same version. Each block appears exactly once.
//
// Not thread-safe.
class SharedRuns {
 public:
  // Range of indices in BlockMap::owned_by: [begin, end), not empty.
  struct Run {
    size_t begin = 0;
    size_t end = 0;
  };

  // Maximum size of a run, except for a single larger block. At this size the cost of a frame is
  // small compared to the apply (about 20 us to 1 ms), and the server's thread soon switches to the
  // next worker.
  static constexpr int64_t kMaxRunBytes = int64_t{8} << 20;

  // `map` must outlive this object.
  SharedRuns(const BlockMap* map, int server);

  // Returns the next run of ready blocks that were not in a run yet, or nullopt if there is none. A
  // block marked `alone` forms a run by itself; by default none is marked. All arguments are
  // indexed by block. Calls must pass the same arguments, except that more blocks may become ready.
  std::optional<Run> Next(const std::vector<bool>& is_ready, const std::vector<Version>& versions,
                          const std::vector<bool>& alone = {});

  // Returns true if each block was in a run.
  bool done() const { return left_ == 0; }

 private:
  const BlockMap& map_;
  const std::vector<BlockId>& owned_;
  std::vector<bool> taken_;  // by index into owned_
  size_t left_;
  // End of the last run. The search starts here because backward() makes neighbours ready together.
  size_t next_ = 0;
};

}  // namespace torchps
