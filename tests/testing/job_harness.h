#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "proto/parameter_service.pb.h"
#include "server/job/hosted_job.h"
#include "server/store/job_storage.h"
#include "tests/testing/manual_clock.h"
#include "wire/frame_payload.h"

namespace torchps {

// A HostedJob with a small model and calls that read well in tests. The model has one trained
// segment "w" of `trained` elements in blocks of `block_elements`, and, if asked for, an averaged
// one "running_mean".
class JobHarness {
 public:
  struct Options {
    int64_t trained = 32;
    int64_t averaged = 0;
    int64_t block_elements = 16;  // what a job may ask for at the least
    int workers = 2;
    // Borrowed; null: nothing is kept.
    JobStorage* storage = nullptr;
    // Text format, merged over plain SGD with learning rate 1, and then as AsyncUnlessSaid() does.
    std::string job;
  };

  explicit JobHarness(const Options& options);

  // The first Hello of slot 0, as every worker would send it.
  static HelloRequest Hello(const Options& options);

  HostedJob& job() { return *job_; }
  ManualClock& clock() { return clock_; }

  // Hello of `slot`; returns the reply.
  absl::StatusOr<HelloReply> Enter(SlotId slot, Incarnation incarnation);

  // Initial values: all blocks get `value`. REQUIRES: slot entered.
  absl::Status Initialize(SlotId slot, Incarnation incarnation, float value);

  // One frame whose every element is `value`.
  absl::Status Frame(SlotId slot, Incarnation incarnation, Step step, BlockId block, float value,
                     Version base, uint32_t weight = 1);

  // One frame that says that there is no finite gradient of this block.
  absl::Status Withhold(SlotId slot, Incarnation incarnation, Step step, BlockId block,
                        Version base, uint32_t weight = 1);

  // All frames of a step, then the end of the call. `base` is the version computed on, by default
  // each block's present one. The reply lies in the result when it has come.
  std::shared_ptr<absl::StatusOr<PushReply>> Push(SlotId slot, Incarnation incarnation, Step step,
                                                  float value, Version base = -1,
                                                  uint32_t weight = 1);

  // Becomes true when the pull is let go. `refused` gets the status of one that is not accepted.
  struct Pulling {
    bool granted = false;
    HostedJob::PullGrant grant;
    absl::Status refused;
    HostedJob::ParkedId parked = 0;
  };
  std::shared_ptr<Pulling> Pull(SlotId slot, Incarnation incarnation, Step clock,
                                bool ahead = false);

  // The first element of a block, and its version.
  float Value(BlockId block);
  Version GetVersion(BlockId block);

  ServerStatus Status(bool include_ledger = false);

  size_t blocks() const { return map_.blocks().size(); }

 private:
  ManualClock clock_;
  std::unique_ptr<HostedJob> job_;
  BlockMap map_;
};

// `elements` as they come in a frame.
FramePayload MakePayload(const std::vector<float>& elements);

}  // namespace torchps
