#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/element_runs.h"

// The block elements that a gradient does not contain, encoded as bytes. Each run consists of its
// first element and its length, both as unsigned 32-bit little-endian integers (docs/protocol.md). All
// functions are thread-safe.

namespace torchps {

inline constexpr size_t kAbsentRunBytes = 8;

// Keeps a forged run count from allocating much memory. Real models stay below this limit; only a
// block of 512 KiB or more, made of one-element tensors with every second tensor absent, would
// exceed it.
inline constexpr size_t kMaxAbsentRuns = size_t{1} << 16;
inline constexpr size_t kMaxAbsentTableBytes = kMaxAbsentRuns * kAbsentRunBytes;

inline size_t AbsentTableBytes(size_t runs) { return runs * kAbsentRunBytes; }

// Writes AbsentTableBytes(runs.size()) bytes to `destination`, which may be unaligned. REQUIRES:
// `runs` lies within a block of fewer than 2^32 elements.
void WriteAbsentTable(absl::Span<const ElementRun> runs, uint8_t* destination);

// Decodes `bytes` into runs. Returns INVALID_ARGUMENT, describing the fault, for an incomplete run,
// more than `max_runs` runs, an empty run, or a run that does not follow the previous run with a
// gap. Does not check against the block length; a caller that knows the block uses CheckRuns().
absl::StatusOr<ElementRuns> ReadAbsentTable(absl::Span<const uint8_t> bytes,
                                            size_t max_runs = kMaxAbsentRuns);

}  // namespace torchps
