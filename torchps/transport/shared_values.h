#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/block_map.h"
#include "torchps/common/types.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {

// Shared memory for the block values of a server. The server moves the values here when a worker on
// this machine first reads them in place.
//
// Only provides the memory and does not access it after creation. Immutable and therefore
// thread-safe.
class ValueArena {
 public:
  // Returns UNAVAILABLE if the kernel refuses the memory.
  static absl::StatusOr<std::unique_ptr<const ValueArena>> Create(const BlockMap& map, int server);

  ValueArena(const ValueArena&) = delete;
  ValueArena& operator=(const ValueArena&) = delete;

  // Return the memory for owned block number `index`, in the order of BlockMap::owned_by. Valid
  // during the lifetime of this object.
  absl::Span<float> values(size_t index) const;
  SharedBlock* head(size_t index) const;

  const SharedSegment& segment() const { return *segment_; }

 private:
  ValueArena(const BlockMap& map, int server, std::unique_ptr<SharedSegment> segment);

  const ValueSegmentLayout layout_;
  std::vector<int64_t> lengths_;
  const std::unique_ptr<SharedSegment> segment_;
};

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

  // Maximum size of a run, except for a single larger block. At this size the cost of a frame
  // (about 20 us) is small compared to the time that the server needs to apply the run (about 1
  // ms). Yet the server's thread soon switches to the next worker.
  static constexpr int64_t kMaxRunBytes = int64_t{8} << 20;

  // `map` must outlive this object.
  SharedRuns(const BlockMap* map, int server);

  // Returns the next run of ready blocks that were not in a run yet, or nullopt if there are no
  // such blocks. A block marked `alone` forms a run by itself; by default no block is marked. All
  // arguments are indexed by block. Calls must pass the same arguments, except that more blocks may
  // become ready.
  std::optional<Run> Next(const std::vector<bool>& is_ready, const std::vector<Version>& versions,
                          const std::vector<bool>& alone = {});

  // Returns true if each block of the server was in a run.
  bool done() const { return left_ == 0; }

 private:
  const BlockMap& map_;
  const std::vector<BlockId>& owned_;
  std::vector<bool> taken_;  // by index into owned_
  size_t left_;
  // End of the last run. The search starts here because backward() makes neighbours ready together.
  size_t next_ = 0;
};

// Reads the values of a server on this machine directly from the server's memory.
//
// Immutable and therefore thread-safe, although the values change constantly. Keeps the server's
// memory mapped even after the server dies.
class SharedValues {
 public:
  // Maps the segment that server number `server` offered in the reply to Hello. Returns
  // FAILED_PRECONDITION if SharedSegment::Open rejects it.
  static absl::StatusOr<std::unique_ptr<const SharedValues>> Open(const SharedSegment::Offer& offer,
                                                                  const BlockMap& map, int server);

  // Copies owned block number `index` to `destination`, unless its version is already `have`.
  // Returns the current version. Returns nullopt if the server was changing the block;
  // `destination` may then hold a mixture of versions. Never blocks. REQUIRES: the server has
  // admitted a pull since the block received its first values.
  std::optional<Version> Read(size_t index, Version have, float* destination) const;

 private:
  SharedValues(std::unique_ptr<const SharedSegment> segment, const BlockMap& map, int server);

  const std::unique_ptr<const SharedSegment> segment_;
  const ValueSegmentLayout layout_;
  std::vector<size_t> block_bytes_;
};

}  // namespace torchps
