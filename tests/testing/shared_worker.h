#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shm/shared_layout.h"
#include "shm/shared_segment.h"
#include "shm/shared_values.h"
#include "tests/testing/plain_worker.h"

namespace torchps {

// A PlainWorker that shares memory with its server. Not thread-safe.
class SharedWorker {
 public:
  SharedWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello);

  PlainWorker& plain() { return plain_; }

  // Says Hello with an offer of its memory. OK also where the server does not take it; see
  // shares().
  absl::Status Hello();
  bool shares() const { return values_ != nullptr; }

  // Where block `block` is pushed from.
  absl::Span<float> Gradient(BlockId block);
  // All blocks as they lie there, `blocks_in_frame` to a frame.
  absl::StatusOr<PushReply> Push(Step step, uint32_t blocks_in_frame = 1000);
  PushFrame Frame(Step step, BlockId block, uint32_t blocks) const;

  // What the gate says, then every block until it is whole.
  absl::Status Pull(Step clock);
  // One try to read one block, whatever the gate says.
  std::optional<Version> Read(BlockId block, float* destination) const {
    return values_->Read(block, /*have=*/-1, destination);
  }
  // Of the last pull, by block.
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
