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

// Takes frames apart that carry no values and refer to a run of blocks in a worker's shared memory:
// each block is pushed as if it had come in a frame of its own. A long run is pushed on two
// threads.
//
// Thread-safe. Borrows the segments and the map.
class SharedFrames {
 public:
  // May be called on two threads at once.
  using PushBlock =
      absl::FunctionRef<absl::Status(const PushHeader& header, const FramePayload& payload)>;

  // Of the server with this index.
  SharedFrames(const PushSegments* segments, const BlockMap* map, int server_index)
      : segments_(segments), map_(map), server_index_(server_index) {}

  // Pushes the blocks of `segment` that the frame refers to. `copies`: each as a copy, made once,
  // so that two who read it one after the other read the same whatever the worker writes meanwhile.
  // INVALID_ARGUMENT: it refers to what the segment or this server does not have, and nothing was
  // pushed. Else the first error of `push`; which of the others were pushed is open.
  absl::Status Push(const PushHeader& header, const SharedSegment& segment, bool copies,
                    PushBlock push);

 private:
  const PushSegments* const segments_;
  const BlockMap* const map_;
  const int server_index_;
  ApplyHelper helper_;
};

}  // namespace torchps
