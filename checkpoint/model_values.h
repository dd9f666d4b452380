#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/checkpoint_reader.h"
#include "common/block_map.h"
#include "common/model_layout.h"

namespace torchps {

// Hands out the values of a checkpoint tensor by tensor, a block at a time, so that models of any
// size pass through a megabyte of memory. Not thread-safe; borrows the reader.
class ModelValues {
 public:
  using Sink = std::function<absl::Status(absl::Span<const float> values)>;

  // REQUIRES: `reader` has all blocks.
  explicit ModelValues(const CheckpointReader* reader) : reader_(*reader) {}

  // All elements of `segment` in their order, in as many pieces as there are blocks. The first
  // error, the sink's included.
  absl::Status Read(const Segment& segment, const Sink& sink);

 private:
  const CheckpointReader& reader_;
  std::vector<float> values_;  // of block_
  int64_t block_ = -1;
};

}  // namespace torchps
