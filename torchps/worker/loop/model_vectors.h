#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/types.h"

namespace torchps {

// The model as flat vectors in host memory. This is the step loop's only view of the model;
// torchps/worker/flat_model.h implements it for a module. If forward() computes on a GPU copy,
// ToDevice() and ToHost() keep the copy and the vectors in sync. Thread-compatible.
class ModelVectors {
 public:
  virtual ~ModelVectors() = default;

  // Returns all values: first the trained elements, then the averaged ones.
  virtual absl::Span<float> values() = 0;
  // Returns the gradients of the trained elements.
  virtual absl::Span<float> gradients() = 0;
  // Returns the values of the averaged elements, which are the end of values().
  virtual absl::Span<const float> averaged() = 0;
  // Returns a function that returns true if a trained block of gradients() is finite. The function
  // is valid until gradients() changes. Returns null if no device checked the gradients.
  virtual std::function<bool(BlockId)> is_finite() { return nullptr; }

  // Returns the second value vector, which has the size of values(). The first call allocates it.
  virtual absl::Span<float> next_values() = 0;
  // Swaps values() and next_values(); forward() then uses the new values. INTERNAL as for
  // ToDevice(). REQUIRES: next_values() was called.
  virtual absl::Status UseNextValues() = 0;

  // Prepares for a pull into `values`, which is all of values() or of next_values(). Returns a
  // callback, which must be called with each block that arrives, or null if none is needed. A
  // client thread may call it until ToDevice(), UseNextValues() or the next ExpectBlocks().
  // INTERNAL as for ToDevice().
  virtual absl::StatusOr<std::function<void(BlockId)>> ExpectBlocks(absl::Span<float> /*values*/) {
    return nullptr;
  }

  // Makes forward() compute with values(). Call it after values() were written. If ExpectBlocks()
  // prepared the pull that wrote them, only blocks passed to its callback change on the device.
  // INTERNAL, here and in ToHost(), if the device failed, possibly in earlier work.
  virtual absl::Status ToDevice() = 0;
  // Brings the results of backward() into gradients() and averaged().
  virtual absl::Status ToHost() = 0;
};

}  // namespace torchps
