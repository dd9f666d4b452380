#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "server/job/apply_helper.h"
#include "shm/push_segments.h"
#include "shm/shared_segment.h"
#include "wire/frame_codec.h"

namespace torchps {

// Splits frames that carry no values but refer to a run of blocks in a worker's shared memory. Each
// block is pushed as if it had arrived in a separate frame. Two threads push a long run.
//
// Thread-safe. Borrows the segments and the map.
class SharedFrames {
 public:
  // May be called on two threads at the same time.
  using PushBlock =
      absl::FunctionRef<absl::Status(const PushHeader& header, const FramePayload& payload)>;

  // `server_index` is the index of this server in the map.
  SharedFrames(const PushSegments* segments, const BlockMap* map, int server_index)
      : segments_(segments), map_(map), server_index_(server_index) {}

  // Pushes the blocks of `segment` that the frame refers to. If `copies` is true, pushes a copy of
  // each block, so that two readers see the same values while the worker writes. INVALID_ARGUMENT:
  // the frame refers to a buffer or block that the segment or this server does not hold; no block
  // was pushed. Otherwise returns the first error of `push`; other blocks may have been pushed.
  absl::Status Push(const PushHeader& header, const SharedSegment& segment, bool copies,
                    PushBlock push);

 private:
  const PushSegments* const segments_;
  const BlockMap* const map_;
  const int server_index_;
  ApplyHelper helper_;
};

}  // namespace torchps
