#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace torchps {

// The form of a file of predictions.
enum class PredictionForm {
  kCsv,          // a line of titles, and a line for each sample
  kJsonLines,    // a JSON object for each sample
  kNumpy,        // .npy, float32 [samples, numbers]: what CSV's last columns have
  kSafetensors,  // `output`, as kNumpy, and where they exist `predicted` and `target`, int64 or
                 // float32
};

// Writes a model's answers, sample by sample.
//
// The numbers of a sample are the probability of each class for a model that chooses one of the
// data's classes, the numbers that a regression predicts, in the units of the data, and else the
// model's output. Not thread-safe.
class PredictionWriter {
 public:
  // `path` as OutputFile has it. The form follows from its ending, .jsonl, .npy or .safetensors;
  // another path is JSON lines with `json`, else CSV. Borrows `data`.
  static absl::StatusOr<std::unique_ptr<PredictionWriter>> Open(const std::string& path, bool json,
                                                                const DataSource& data);
  virtual ~PredictionWriter() = default;

  // The next samples. `output` is the model's first output for `batch`, on the CPU.
  // INVALID_ARGUMENT: another shape than before, in a form that has one shape.
  virtual absl::Status Add(const Batch& batch, const torch::Tensor& output) = 0;
  virtual absl::Status Close() = 0;
};

PredictionForm GetForm(const std::string& path, bool json);

}  // namespace torchps
