#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/cached_versions.h"
#include "client/parameter_client.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "shm/push_segment.h"
#include "tests/fault/integer_rig.h"
#include "tests/worker/device/fake_link.h"
#include "worker/device/gradient_outbox.h"
#include "worker/device/value_uploader.h"

namespace torchps {

// One process of a slot of an IntegerRig: pulls, and pushes the gradients that their names say.
//
// With a link it has a device apart from the host, and goes about it as a worker with a GPU does.
// What it pulls goes up as it lands. What it pushes is copied down block by block, late, after the
// push has begun; and while a push is under way the next step's gradient is computed and copied
// down already, so a block that is sent again must still lie where it lay. An error of the link
// leaves a push that some blocks of the step may have gone with.
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
    // Where what is pushed lies; two buffers if there is a link. Null: in memory of its own.
    PushSegment* segment = nullptr;
    // Its device's; `own_thread` is set. None: gradients are there at once.
    absl::optional<FakeLink::Options> link;
  };

  explicit IntegerPusher(const Options& options);
  ~IntegerPusher();
  IntegerPusher(const IntegerPusher&) = delete;
  IntegerPusher& operator=(const IntegerPusher&) = delete;

  // As ParameterClient's, and with the link's errors. INTERNAL too: a device computes with other
  // values than the host has pulled.
  absl::StatusOr<PullResult> Pull(Step clock, CachedVersions* held = nullptr);
  absl::StatusOr<PushResult> Push(Step step);

  bool is_linked() const { return link_ != nullptr; }

 private:
  // Memory of the device's and what copies it.
  void MakeDevice(FakeLink::Options link);
  absl::StatusOr<PushResult> PushFromDevice(Step step);
  // The device computes the gradient of `step`: some of its blocks, in an order that is drawn.
  void BeginStep(Step step);
  // More of them.
  void ComputeBlocks(size_t count);

  const Options options_;
  // The host's: what was pulled, and what is pushed.
  std::vector<float> values_;
  std::array<std::vector<float>, 2> own_buffers_;
  std::array<absl::Span<float>, 2> buffers_;

  // The device's.
  std::vector<float> computed_with_, staging_, gradients_;
  uint64_t random_ = 0;
  Step step_ = 0;  // that is begun; 0: none
  std::vector<int> gradient_;
  std::vector<BlockRange> to_compute_;
  std::vector<float> beside_;  // values that nobody needs
  // They end before the memory that they copy.
  std::unique_ptr<FakeLink> link_;
  std::unique_ptr<ValueUploader> inbox_;
  std::unique_ptr<GradientOutbox> outbox_;
};

}  // namespace torchps
