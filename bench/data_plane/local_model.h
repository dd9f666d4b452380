#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/data_plane/scenario.h"
#include "server/optimizer/optimizer.h"

namespace torchps {

// A model in this process, changed by the same optimizer on the same blocks as in a server, without
// a lock or a ledger. Thread-compatible.
class LocalModel {
 public:
  // The pieces in which a server applies.
  static constexpr int64_t kBlockElements = (1 << 20) / sizeof(float);

  // As large as the scenario says, with its optimizer. INVALID_ARGUMENT: that is no OptimizerSpec.
  static absl::StatusOr<std::unique_ptr<LocalModel>> Create(const Scenario& scenario);

  // Applies the part of a gradient that is for the block that begins at element `begin`: as many
  // elements as the block has. REQUIRES: a multiple of kBlockElements within the model.
  void ApplyBlock(int64_t begin, const float* gradient);

  // The gradient is complete; what follows is the next one's.
  void EndStep() { ++parameters_.step; }

  int64_t elements() const { return static_cast<int64_t>(values_.size()); }
  // Of the block that begins there.
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
