#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/types.h"
#include "torchps/data/preprocessing.h"

namespace torchps {

// The samples of one pass: row i of each tensor belongs to sample i. The tensors are on the CPU; a
// worker that trains on another device copies them.
struct Batch {
  torch::Tensor input;  // images: float32 [B, C, H, W]; rows: float32 [B, F]; text: int64 [B, T]
  // Classes: int64 [B]; next bytes or tokens: int64 [B, T]; numbers to predict: float32 [B, K].
  // Undefined for samples without answers.
  torch::Tensor target;
  // For modules with several inputs: the arguments of forward() after `input`, in order.
  std::vector<torch::Tensor> more_inputs = {};
  // More targets, for a program's custom objective.
  std::vector<torch::Tensor> more_targets = {};
};

// Properties of the data that a model must match. Fields that do not apply are 0.
struct DataShape {
  int64_t channels = 0;  // images
  int64_t height = 0;    // images
  int64_t width = 0;     // images
  int64_t features = 0;  // elements of one sample's input: channels * height * width, or columns
  int64_t context = 0;   // text: bytes or tokens in a sample's input
  int64_t classes = 0;   // number of classes
  int64_t targets = 0;   // number of predicted values, if not classes
};

// Provides a fixed list of samples. They are in memory, in the smallest type that can represent
// them, or in files that Get() reads.
//
// Immutable after construction, so all threads may read it concurrently.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // Returns the number of samples.
  virtual int64_t size() const = 0;
  // Returns the shape of the samples, from which a model may take its layer sizes. A program with a
  // fixed module can keep this default.
  virtual DataShape shape() const { return {}; }

  // Returns the samples at `indices`, in that order, as a batch of indices.size() rows. The batch
  // does not share memory with the dataset. REQUIRES: `indices` is not empty, and all are in [0,
  // size()). Only datasets that read files return errors: a missing or damaged file, with the name.
  virtual absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const = 0;

  // Returns a number that is equal in workers with the same samples, and almost certainly different
  // otherwise. The coordinator refuses a worker whose number differs from the job's. 0 means
  // unknown and is not compared; return 0 if samples differ between reads. A custom class may
  // return FingerprintOfSamples(), declared below.
  virtual uint32_t Fingerprint() const { return 0; }
};

// The data of a job. `test` is null if the job does not evaluate.
struct DataSource {
  std::shared_ptr<const Dataset> train;  // trains the model
  std::shared_ptr<const Dataset> test;   // evaluates the model
  // Describes the data in one line, e.g. "MNIST-style IDX images 28x28 from /data: 10000 train,
  // 10000 test".
  std::string description;
  // Converts samples to inputs, and outputs to answers.
  Preprocessing preprocessing = {};
  // More entries for the model file's metadata, from a program that opens data itself.
  std::map<std::string, std::string> metadata = {};
  // Describes the samples in `test`, for example "all 150 rows of new.csv". Empty: the opener
  // ignored JobSpec.data.use.
  std::string test_description = {};
  // Names of the samples in `test`, for example file names. May be empty.
  std::vector<std::string> sample_names = {};

  // Returns all metadata entries.
  std::map<std::string, std::string> Metadata() const {
    std::map<std::string, std::string> all = preprocessing.ToMetadata();
    all.insert(metadata.begin(), metadata.end());
    return all;
  }
};

// Selects the numbers that a fingerprint covers. Numbers that a program computed may differ in the
// last bits between machines although the data are the same.
enum class Fingerprinted {
  kAllNumbers,    // all tensors
  kWholeNumbers,  // of floating-point tensors only the shapes
};

// Returns a non-zero number that identifies the samples: a hash (torchps/common/hash.h) of the
// dataset size and of the shapes and bytes of seven evenly spaced samples. It detects another
// order, another file or another version, but usually not a change in a single sample. Returns 0 if
// the samples cannot be read; training reports the error. Use it to implement
// Dataset::Fingerprint(). REQUIRES: samples do not differ between reads.
uint32_t FingerprintOfSamples(const Dataset& data, Fingerprinted numbers);

// Shortens a custom 64-bit hash to a fingerprint, which is never 0.
uint32_t FingerprintOfHash(uint64_t hash);

// Returns the fingerprints of a job's two datasets; 0 for a dataset that is null.
DataFingerprint GetFingerprint(const DataSource& source);

}  // namespace torchps
