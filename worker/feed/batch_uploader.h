#pragma once

#include <memory>

#include "data/dataset.h"

namespace torchps {

// What brings batches from the host to a device, beside what that computes: a batch is put where it
// can go up from without anybody waiting, its copy is begun, and what is computed with it waits on
// the device for that copy's end.
//
//   loader   | make, Stage b1 | make, Stage b2 |
//   up                   b0               b1 ..            b2 ..
//   compute                 | with b0          | with b1
//
// Thread-safe, but for Arrive() and EndPass(), which belong to the thread that gives the device
// what it computes. Everything throws what torch throws.
class BatchUploader {
 public:
  // A batch on its way. Whoever drops it loses the batch only: the memory on both sides is kept
  // until the copy has ended.
  struct Rising {
    Batch batch;
    // Null: it goes up in Arrive().
    std::shared_ptr<const void> end;
  };

  virtual ~BatchUploader() = default;

  // The calling thread, which is the caller's own, is going to use the others.
  virtual void EnterThread() = 0;
  // The same batch where Begin() can copy it from.
  virtual Batch Stage(Batch batch) = 0;
  // Begins the copy up of what Stage() has returned. Does not wait for it.
  virtual Rising Begin(Batch batch) = 0;
  // The batch on the device, for what the calling thread gives that to compute from now on.
  virtual Batch Arrive(Rising rising) = 0;
  // The device was given all that is computed with the last batch that has arrived. Waits where the
  // calling thread is several passes ahead of the device, else the batches that it has given would
  // fill the device's memory.
  virtual void EndPass() = 0;
};

}  // namespace torchps
