#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/checkpoint_reader.h"
#include "common/block_map.h"
#include "common/model_layout.h"

namespace torchps {

// Reads the values of a checkpoint tensor by tensor, one block at a time, so memory use does not
// depend on the model size. Not thread-safe; borrows the reader.
class ModelValues {
 public:
  using Sink = std::function<absl::Status(absl::Span<const float> values)>;

  // REQUIRES: `reader` contains all blocks.
  explicit ModelValues(const CheckpointReader* reader) : reader_(*reader) {}

  // Passes the elements of `segment` to the sink in order, one call per block. Returns the first
  // error, including the sink's.
  absl::Status Read(const Segment& segment, const Sink& sink);

 private:
  const CheckpointReader& reader_;
  std::vector<float> values_;  // values of block_
  int64_t block_ = -1;
};

}  // namespace torchps
