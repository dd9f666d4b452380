#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "proto/job.pb.h"
#include "worker/cuda/device_scan.h"
#include "worker/device/block_encoder.h"
#include "worker/device/device_link.h"
#include "worker/device/encoded_outbox.h"
#include "worker/device/finite_check.h"
#include "worker/flat_model.h"
#include "worker/slot/worker_options.h"

namespace torchps {

// What a slot's device does beside computing, where the model lies on one device apart from the
// host: it copies, looks at gradients, encodes them (docs/gpus.md). Elsewhere nothing is set up.
// Neither is what the device lacks something for; then that is logged, and the host does it.
//
// Thread-compatible. Borrows everything.
class DeviceWork {
 public:
  // `job` as the coordinator has confirmed it.
  DeviceWork(const WorkerOptions& options, const JobSpec& job, const BlockMap& block_map,
             FlatModel* model)
      : options_(options), job_(job), block_map_(block_map), model_(*model) {}
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  // The model's copies go beside computing from now on. REQUIRES: nothing was pulled yet.
  void Link();
  // Where each gradient is looked at as a whole, the device does so from now on.
  void Scan();
  // The device looks at each block of a gradient before that is copied, from now on, where that is
  // copied block by block. REQUIRES: as Encode(), and that gave null, or was not called.
  void Look();
  // Gradients are encoded on the device from now on, and come as the result has them. Null: all is
  // as it was, as it always is where local steps end on the host, or where the host has to look at
  // gradients. REQUIRES: the job has an encoding; Link() and Scan() were called before where they
  // are to be.
  EncodedOutbox* Encode();

 private:
  absl::StatusOr<std::unique_ptr<DeviceLink>> MakeLink() const;
  absl::StatusOr<std::unique_ptr<DeviceScan>> MakeScan() const;
  absl::StatusOr<std::unique_ptr<FiniteCheck>> MakeFiniteCheck() const;
  absl::StatusOr<std::unique_ptr<BlockEncoder>> MakeEncoder() const;

  const WorkerOptions& options_;
  const JobSpec& job_;
  const BlockMap& block_map_;
  FlatModel& model_;
};

}  // namespace torchps
