#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/element_runs.h"

// The elements of a block that a gradient has nothing for, as bytes: for each run its first element
// and their number, both unsigned, 32 bits, little-endian (docs/protocol.md). All functions are
// thread-safe.

namespace torchps {

inline constexpr size_t kAbsentRunBytes = 8;

// A limit that no model reaches, and that keeps a forged number from costing memory: a block of
// tensors of one element each, every other one absent, would have more from 512 KiB on.
inline constexpr size_t kMaxAbsentRuns = size_t{1} << 16;
inline constexpr size_t kMaxAbsentTableBytes = kMaxAbsentRuns * kAbsentRunBytes;

inline size_t AbsentTableBytes(size_t runs) { return runs * kAbsentRunBytes; }

// Writes AbsentTableBytes(runs.size()) bytes to `destination`, at any address. REQUIRES: a block's
// runs, whose elements are fewer than 2^32.
void WriteAbsentTable(absl::Span<const ElementRun> runs, uint8_t* destination);

// The runs that `bytes` are. INVALID_ARGUMENT says what is wrong: half a run, more than
// `max_runs`, an empty one, one that does not come behind the one before with a gap. Whether they
// lie in their block, CheckRuns() tells a caller that knows it.
absl::StatusOr<ElementRuns> ReadAbsentTable(absl::Span<const uint8_t> bytes,
                                            size_t max_runs = kMaxAbsentRuns);

}  // namespace torchps
