#pragma once

#include <memory>

#include "data/dataset.h"

namespace torchps {

// Uploads batches from the host to a device while the device computes. Stage() moves a batch to
// memory that allows asynchronous copies. Begin() starts the copy, and work that uses the batch
// waits for it on the device.
//
//   loader   | make, Stage b1 | make, Stage b2 |
//   up                   b0               b1 ..            b2 ..
//   compute                 | with b0          | with b1
//
// Thread-safe, except that Arrive() and EndPass() must be called by the thread that enqueues the
// device's work. All functions may throw torch's exceptions.
class BatchUploader {
 public:
  // Holds a batch being copied. Dropping it loses only the batch: the memory on both sides is kept
  // until the copy ends.
  struct Rising {
    Batch batch;
    // Null if Arrive() makes the copy.
    std::shared_ptr<const void> end;
  };

  virtual ~BatchUploader() = default;

  // Prepares the calling thread, which must be a thread of the caller's, to call the other
  // functions.
  virtual void EnterThread() = 0;
  // Returns the same batch in memory that Begin() can copy from.
  virtual Batch Stage(Batch batch) = 0;
  // Begins copying a batch that Stage() returned. Does not block.
  virtual Rising Begin(Batch batch) = 0;
  // Returns the batch on the device, for work that the calling thread enqueues from now on.
  virtual Batch Arrive(Rising rising) = 0;
  // Called when all work that uses the last batch is enqueued. Blocks if the calling thread is
  // several passes ahead of the device. Otherwise the enqueued batches would fill the device
  // memory.
  virtual void EndPass() = 0;
};

}  // namespace torchps
