#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/testing/plain_worker.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/shared_segment.h"
#include "torchps/transport/shared_values.h"

namespace torchps {

// Uses a PlainWorker for the calls, and sends gradients and receives values through shared memory.
// Not thread-safe.
class SharedWorker {
 public:
  SharedWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello);

  PlainWorker& plain() { return plain_; }

  // Says Hello and offers shared memory. Returns OK even if the server declines; see shares().
  absl::Status Hello();
  bool shares() const { return values_ != nullptr; }

  // Returns the shared memory of the block's gradient.
  absl::Span<float> Gradient(BlockId block);
  // Pushes all blocks from shared memory, up to `blocks_in_frame` per frame.
  absl::StatusOr<PushReply> Push(Step step, uint32_t blocks_in_frame = 1000);
  PushFrame Frame(Step step, BlockId block, uint32_t blocks) const;

  // Calls Pull, and after the server's reply reads each block until the read is not torn.
  absl::Status Pull(Step clock);
  // Tries to read one block once, without a pull.
  std::optional<Version> Read(BlockId block, float* destination) const {
    return values_->Read(block, /*have=*/-1, destination);
  }
  // Results of the last pull, by block.
  const std::vector<std::vector<float>>& values() const { return pulled_; }
  const std::vector<Version>& versions() const { return versions_; }

 private:
  SharedWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello, ModelLayout layout);

  const PushSegmentLayout layout_;
  const std::unique_ptr<SharedSegment> segment_;
  PlainWorker plain_;
  std::unique_ptr<const SharedValues> values_;
  std::vector<std::vector<float>> pulled_;
  std::vector<Version> versions_;
};

}  // namespace torchps
