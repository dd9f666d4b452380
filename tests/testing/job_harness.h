#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/testing/manual_clock.h"
#include "torchps/common/block_map.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/server/store/job_storage.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {

// Wraps a HostedJob with a small model in short calls for tests. The model contains one trained
// segment "w" with `trained` elements in blocks of `block_elements`. If `averaged` is set, it also
// contains an averaged segment "running_mean".
class JobHarness {
 public:
  struct Options {
    int64_t trained = 32;
    int64_t averaged = 0;
    int64_t block_elements = 16;  // the minimum that a job may request
    int workers = 2;
    // Borrowed; null: the job is not stored.
    JobStorage* storage = nullptr;
    // Job fields in text format. They override the harness's fields (SGD, learning rate 1), and
    // AsyncUnlessSaid() sets the remaining defaults.
    std::string job;
  };

  explicit JobHarness(const Options& options);

  // Returns the first Hello of slot 0, as a worker sends it.
  static HelloRequest Hello(const Options& options);

  HostedJob& job() { return *job_; }
  ManualClock& clock() { return clock_; }

  // Says Hello as `slot` and returns the reply.
  absl::StatusOr<HelloReply> Enter(SlotId slot, Incarnation incarnation);

  // Initializes each block with `value`. REQUIRES: the slot entered.
  absl::Status Initialize(SlotId slot, Incarnation incarnation, float value);

  // Pushes one frame filled with `value`.
  absl::Status Frame(SlotId slot, Incarnation incarnation, Step step, BlockId block, float value,
                     Version base, uint32_t weight = 1);

  // Pushes one frame that marks the block's gradient as not finite.
  absl::Status Withhold(SlotId slot, Incarnation incarnation, Step step, BlockId block,
                        Version base, uint32_t weight = 1);

  // Pushes all frames of a step and ends the call. `base` is the version that the gradient was
  // computed on, by default each block's current version. The result is set when the reply arrives.
  std::shared_ptr<absl::StatusOr<PushReply>> Push(SlotId slot, Incarnation incarnation, Step step,
                                                  float value, Version base = -1,
                                                  uint32_t weight = 1);

  // `granted` becomes true when the server lets the pull read, at once or after parking it.
  // `refused` is the status of a refused pull.
  struct Pulling {
    bool granted = false;
    HostedJob::PullGrant grant;
    absl::Status refused;
    HostedJob::ParkedId parked = 0;
  };
  std::shared_ptr<Pulling> Pull(SlotId slot, Incarnation incarnation, Step clock,
                                bool ahead = false);

  // Return the first element of a block, and the block's version.
  float Value(BlockId block);
  Version GetVersion(BlockId block);

  ServerStatus Status(bool include_ledger = false);

  size_t blocks() const { return map_.blocks().size(); }

 private:
  ManualClock clock_;
  std::unique_ptr<HostedJob> job_;
  BlockMap map_;
};

// Returns `elements` as the payload of a frame.
FramePayload MakePayload(const std::vector<float>& elements);

}  // namespace torchps
