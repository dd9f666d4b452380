#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace torchps {

// What a model is fed in one pass: row i of every tensor belongs to sample i. On the CPU; a worker
// that trains elsewhere moves them.
struct Batch {
  torch::Tensor input;   // images: float32 [B, C, H, W]; rows: float32 [B, F]; text: int64 [B, T]
  torch::Tensor target;  // classes: int64 [B]; next bytes or tokens: int64 [B, T]; numbers to
                         // predict: float32 [B, K]
  // Of a module whose forward() takes several tensors: those after `input`, in its order.
  std::vector<torch::Tensor> more_inputs = {};
  // What an objective of one's own wants beside `target`.
  std::vector<torch::Tensor> more_targets = {};
};

// What of the data a model must know to fit it. A field is 0 where it has no meaning.
struct DataShape {
  int64_t channels = 0;  // images
  int64_t height = 0;
  int64_t width = 0;
  int64_t features = 0;  // elements of one sample's input: channels * height * width, or columns
  int64_t context = 0;   // text: bytes or tokens that a sample's input spans
  int64_t classes = 0;   // what a prediction chooses from
  int64_t targets = 0;   // numbers that a prediction is made of, where it does not choose
};

// A fixed list of samples, held in memory in the smallest type that carries them, or in files that
// Get() reads.
//
// Immutable once built, so any number of threads may read it at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  // For a module that fits itself to the data; a program that knows its data needs none.
  virtual DataShape shape() const { return {}; }

  // The samples at `indices`, in that order, as a batch of indices.size() rows that shares no
  // memory with the dataset. REQUIRES: indices is not empty, each in [0, size()).
  // An error comes only from datasets that fetch samples from elsewhere: a file that is gone or
  // damaged, with its name.
  virtual absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const = 0;

  // A number that workers with the same samples have in common, and with others hardly: a job takes
  // no worker whose number differs. 0, of which nothing is compared: unknown, as it must be where
  // samples differ from read to read. A class of one's own may return FingerprintOfSamples()
  // (data/fingerprint.h).
  virtual uint32_t Fingerprint() const { return 0; }
};

// The data of a job. `test` is null where there is nothing to evaluate on.
struct DataSource {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  // One line for people, e.g. "MNIST-style IDX images 28x28 from /data: 10000 train, 10000 test".
  std::string description;
  // What was done to the input, for a program that uses the trained model; goes into the metadata
  // of its file. Of images: "input" says how, "input_mean" and "input_deviation" hold a number for
  // each channel, as JSON. Of tables the same for each column, and "input_columns" their names.
  // Further what predictions mean: "classes" their names, as a JSON array, in the order of the
  // outputs; of tables "target_columns", the names of the numbers that are predicted.
  std::map<std::string, std::string> transform = {};
  // Names of the classes, where the data name them: output i is class_names[i].
  std::vector<std::string> class_names = {};
};

}  // namespace torchps
