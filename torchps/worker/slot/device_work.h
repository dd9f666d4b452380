#pragma once

#include "torchps/common/block_map.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps {

// Sets up the work that a slot's device does in addition to computing: copying, checking and
// encoding gradients (docs/gpus.md). Applies only if one device with separate memory, such as a
// GPU, holds the whole model. If the device lacks a capability, the functions log it and the host
// does the work.
//
// Thread-compatible. Borrows everything.
class DeviceWork {
 public:
  // `job` is the job as confirmed by the coordinator.
  DeviceWork(const WorkerOptions& options, const JobSpec& job, const BlockMap& block_map,
             FlatModel* model)
      : options_(options), job_(job), block_map_(block_map), model_(*model) {}
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  // Makes copies run in parallel with computing. REQUIRES: called before the first pull.
  void Link();
  // If the job checks or clips whole gradients, makes the device do that.
  void Scan();
  // If gradients are copied block by block, makes the device check each block before it is copied.
  // REQUIRES: Link() was called before, if it is used; Encode() was not called or returned null.
  void Look();
  // Makes the device encode gradients and returns the outbox they arrive in. Returns null without
  // any change if the host must encode: the model has no link, the job has local steps, whole
  // gradients must be checked without Scan(), or the encoder cannot be made. REQUIRES: the job
  // configures an encoding; Link() and Scan() were called before, if they are used.
  EncodedOutbox* Encode();

 private:
  const WorkerOptions& options_;
  const JobSpec& job_;
  const BlockMap& block_map_;
  FlatModel& model_;
};

}  // namespace torchps
