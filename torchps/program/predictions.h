#pragma once

#include <torch/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/data/dataset.h"

namespace torchps {

// Writes a file under a temporary name, and renames it when it is complete. Writes directly to
// pipes and devices. Not thread-safe.
class OutputFile {
 public:
  // Opens `path`, or standard output if `path` is empty. INVALID_ARGUMENT: the file cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(absl::string_view bytes);
  void Line(const std::string& line);
  // RESOURCE_EXHAUSTED: a write failed.
  absl::Status Close();

  // True for a regular file; false for standard output, a pipe or a device.
  bool is_file() const { return temporary_ != path_; }

 private:
  OutputFile(std::FILE* file, std::string temporary, std::string path);

  std::FILE* file_;
  const std::string temporary_;  // renamed to `path_` when complete
  const std::string path_;
  bool is_whole_ = false;
};

// The format of a predictions file.
enum class PredictionForm {
  kCsv,          // a title line, then one line per sample
  kJsonLines,    // one JSON object per sample
  kNumpy,        // .npy, float32 [samples, numbers]: the same numbers as at the end of a CSV line
  kSafetensors,  // `output` like kNumpy; if available, `predicted` and `target` (int64 or float32)
};

// Writes a model's answers, sample by sample.
//
// The numbers of a sample depend on the model. A model that chooses a class gives the probability
// of each class. A regression gives the predicted numbers in the units of the data. Any other model
// gives its output. Not thread-safe.
class PredictionWriter {
 public:
  // Opens `path`, as in OutputFile. The suffix selects the format: .jsonl, .npy or .safetensors.
  // Other paths get JSON lines if `json` is true, else CSV. Borrows `data`.
  static absl::StatusOr<std::unique_ptr<PredictionWriter>> Open(const std::string& path, bool json,
                                                                const DataSource& data);
  virtual ~PredictionWriter() = default;

  // Adds the next samples. `output` is the model's first output for `batch`, on the CPU.
  // INVALID_ARGUMENT: the shape differs from earlier batches, and the format requires one shape.
  virtual absl::Status Add(const Batch& batch, const torch::Tensor& output) = 0;
  virtual absl::Status Close() = 0;
};

PredictionForm GetForm(const std::string& path, bool json);

}  // namespace torchps
