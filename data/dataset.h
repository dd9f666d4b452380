#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/preprocessing.h"

namespace torchps {

// The samples of one pass: row i of every tensor belongs to sample i. On the CPU; a worker that
// trains elsewhere moves them.
struct Batch {
  torch::Tensor input;  // images: float32 [B, C, H, W]; rows: float32 [B, F]; text: int64 [B, T]
  // Classes: int64 [B]; next bytes or tokens: int64 [B, T]; numbers to predict: float32 [B, K].
  // Undefined for samples without answers.
  torch::Tensor target;
  // For a module whose forward() takes several tensors: those after `input`, in its order.
  std::vector<torch::Tensor> more_inputs = {};
  // Further targets for a program's own objective.
  std::vector<torch::Tensor> more_targets = {};
};

// The facts about data that a model must fit. A field is 0 where it has no meaning.
struct DataShape {
  int64_t channels = 0;  // images
  int64_t height = 0;
  int64_t width = 0;
  int64_t features = 0;  // elements of one sample's input: channels * height * width, or columns
  int64_t context = 0;   // text: bytes or tokens that a sample's input spans
  int64_t classes = 0;   // classes that a prediction chooses from
  int64_t targets = 0;   // numbers of a prediction, where it does not choose
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
  // How samples become inputs and outputs become answers.
  Preprocessing preprocessing = {};
  // Further entries for the metadata of the model's file, by a program that opens its own data.
  std::map<std::string, std::string> metadata = {};
  // Which samples `test` has: "all 150 rows of new.csv". Empty: the opener ignored
  // JobSpec.data.use.
  std::string test_description = {};
  // Names of `test`'s samples, where they have any: their files.
  std::vector<std::string> sample_names = {};

  // All entries for the metadata.
  std::map<std::string, std::string> Metadata() const {
    std::map<std::string, std::string> all = preprocessing.ToMetadata();
    all.insert(metadata.begin(), metadata.end());
    return all;
  }
};

}  // namespace torchps
