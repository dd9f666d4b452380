#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace torchps {

// The model as flat vectors in host memory, which is all that a worker's loop knows of it.
// worker/flat_model.h makes them of a module. Where forward() computes with a copy of them, on a
// GPU, ToDevice() and ToHost() keep both the same. Thread-compatible.
class ModelVectors {
 public:
  virtual ~ModelVectors() = default;

  // All values: trained elements, then averaged ones.
  virtual absl::Span<float> values() = 0;
  // Gradients of the trained elements.
  virtual absl::Span<float> gradients() = 0;
  // The averaged elements' values: the end of values().
  virtual absl::Span<const float> averaged() = 0;
  // Tells whether a trained block of gradients() is finite, as whoever computed them has found, for
  // as long as they stay; null: nobody has looked.
  virtual std::function<bool(BlockId)> is_finite() { return nullptr; }

  // The second value vector, as long as values(); made by the first call.
  virtual absl::Span<float> next_values() = 0;
  // What was next_values() are the values from now on, for forward() too; what was values() is the
  // memory for the next ones. INTERNAL as ToDevice(). REQUIRES: next_values() was called.
  virtual absl::Status UseNextValues() = 0;

  // A pull into `values`, which is all of values() or of next_values(), is about to begin. Gives
  // who has to hear of each block that is in its place there, on a thread of the client's, up to
  // ToDevice(), UseNextValues() or the next pull; null: nobody. INTERNAL as ToDevice().
  virtual absl::StatusOr<std::function<void(BlockId)>> ExpectBlocks(absl::Span<float> /*values*/) {
    return nullptr;
  }

  // After values() were written: forward() computes with them from now on. After a pull into them
  // that was expected, only with what that has brought.
  // INTERNAL, for both: the device has failed, possibly in work that it was given long before.
  virtual absl::Status ToDevice() = 0;
  // After backward(): gradients() and averaged() are what it left behind.
  virtual absl::Status ToHost() = 0;
};

}  // namespace torchps
