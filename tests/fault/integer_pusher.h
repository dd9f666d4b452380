#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/fault/integer_rig.h"
#include "tests/worker/device/fake_link.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/pending_pull.h"
#include "torchps/common/block_map.h"
#include "torchps/common/types.h"
#include "torchps/transport/push_segments.h"
#include "torchps/worker/device/gradient_outbox.h"
#include "torchps/worker/device/value_uploader.h"

namespace torchps {

// Simulates one process of an IntegerRig slot: pulls, and pushes IntegerRig::Gradient().
//
// With a link, the process behaves like a worker with a GPU. Pulled blocks are uploaded to the
// device as they arrive. The pushed blocks are copied to the host one by one, after the push began.
// During a push the next step's gradient is already computed and copied, so a block that is sent
// again must not be overwritten. After an error of the link, some blocks of the step may have been
// pushed.
//
// Not thread-safe. Borrows the rig, the client and the segment.
class IntegerPusher {
 public:
  struct Options {
    const IntegerRig* rig = nullptr;
    ParameterClient* client = nullptr;
    SlotId slot = 0;
    // Samples that the slot claims for each gradient.
    int64_t weight = 1;
    // Memory of the pushed values; two buffers with a link. Null: the pusher allocates memory.
    PushSegment* segment = nullptr;
    // Options of the device's link; `own_thread` is always set. Without a link, gradients are ready
    // at once.
    std::optional<FakeLink::Options> link;
  };

  explicit IntegerPusher(const Options& options);
  ~IntegerPusher();
  IntegerPusher(const IntegerPusher&) = delete;
  IntegerPusher& operator=(const IntegerPusher&) = delete;

  // Return the errors of ParameterClient and of the link. Pull() also returns INTERNAL if the
  // device's values differ from the values that the host pulled.
  absl::StatusOr<PullResult> Pull(Step clock, CachedVersions* held = nullptr);
  absl::StatusOr<PushResult> Push(Step step);

  bool is_linked() const { return link_ != nullptr; }

 private:
  // Allocates the device's memory and the objects that copy it.
  void MakeDevice(FakeLink::Options link);
  absl::StatusOr<PushResult> PushFromDevice(Step step);
  // Begins to compute the gradient of `step` on the device: some of the blocks, in random order.
  void BeginStep(Step step);
  // Computes `count` more blocks.
  void ComputeBlocks(size_t count);

  const Options options_;
  // Host memory: the pulled values, and the values to push.
  std::vector<float> values_;
  std::array<std::vector<float>, 2> own_buffers_;
  std::array<absl::Span<float>, 2> buffers_;

  // Device memory.
  std::vector<float> computed_with_, staging_, gradients_;
  uint64_t random_ = 0;
  Step step_ = 0;  // the step that was begun; 0: none
  std::vector<int> gradient_;
  std::vector<BlockRange> to_compute_;
  std::vector<float> beside_;  // pulled values that are not used
  // Destroyed before the memory that they copy.
  std::unique_ptr<FakeLink> link_;
  std::unique_ptr<ValueUploader> inbox_;
  std::unique_ptr<GradientOutbox> outbox_;
};

}  // namespace torchps
