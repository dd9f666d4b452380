#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "shm/shared_layout.h"
#include "shm/shared_segment.h"

namespace torchps {

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
