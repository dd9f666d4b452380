#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/data_plane/scenario.h"
#include "torchps/server/optimizer/optimizer.h"

namespace torchps {

// A model in this process, updated by the server's optimizer and block size, but without a lock or
// a ledger. Thread-compatible.
class LocalModel {
 public:
  // The server's block size.
  static constexpr int64_t kBlockElements = (1 << 20) / sizeof(float);

  // Creates the scenario's model and optimizer. INVALID_ARGUMENT: the scenario's optimizer is not
  // an OptimizerSpec.
  static absl::StatusOr<std::unique_ptr<LocalModel>> Create(const Scenario& scenario);

  // Applies a gradient to the block that begins at element `begin`. The gradient is as long as the
  // block. REQUIRES: `begin` is a multiple of kBlockElements within the model.
  void ApplyBlock(int64_t begin, const float* gradient);

  // Call after the last block of each gradient.
  void EndStep() { ++parameters_.step; }

  int64_t elements() const { return static_cast<int64_t>(values_.size()); }
  // Returns the number of elements of the block that begins at element `begin`.
  int64_t BlockElements(int64_t begin) const;

 private:
  LocalModel(int64_t elements, std::unique_ptr<Optimizer> optimizer);

  const std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> values_;
  std::vector<std::vector<float>> slots_;
  std::vector<float*> block_slots_;
  ApplyParameters parameters_;
};

}  // namespace torchps
