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

// The values of one server on this machine, copied from where the server changes them.
//
// Immutable, so thread-safe; what it reads changes all the time. Keeps the server's memory mapped,
// also when the server is dead.
class SharedValues {
 public:
  // The segment that server number `server` has offered in its reply to Hello. FAILED_PRECONDITION:
  // it is not what it should be.
  static absl::StatusOr<std::unique_ptr<const SharedValues>> Open(const SharedSegment::Offer& offer,
                                                                  const BlockMap& map, int server);

  // Copies the owned block number `index` to `destination`, unless its version is `have` already.
  // Returns the version that is there now, or nothing: the server was changing the block, and
  // `destination` may hold a mixture. Never waits; REQUIRES: the server has let a pull go since the
  // block got its first values.
  std::optional<Version> Read(size_t index, Version have, float* destination) const;

 private:
  SharedValues(std::unique_ptr<const SharedSegment> segment, const BlockMap& map, int server);

  const std::unique_ptr<const SharedSegment> segment_;
  const ValueSegmentLayout layout_;
  std::vector<size_t> block_bytes_;
};

}  // namespace torchps
