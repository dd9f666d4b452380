#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/table/csv.h"
#include "proto/job.pb.h"

namespace torchps {

// The conversion of samples to a model's inputs, and of its outputs to answers, as measured on the
// training samples. It belongs to the model: the job keeps it (JobSpec.data.preprocessing), model
// files hold it as metadata, and evaluations and predictions apply it.
//
//   auto net = std::make_shared<Net>();
//   absl::StatusOr<torchps::Preprocessing> model = torchps::LoadModel(*net, "model.safetensors");
//   torch::Tensor numbers = model->Numbers(net->forward(model->Input(raw)));
//
// A value.
struct Preprocessing {
  // The entries of a model file's metadata: docs/storage.md lists them.
  using Metadata = std::map<std::string, std::string>;

  // Ignores entries it does not know. INVALID_ARGUMENT names an entry that cannot be read.
  static absl::StatusOr<Preprocessing> FromMetadata(const Metadata& metadata);
  Metadata ToMetadata() const;

  bool is_table() const { return !columns.empty(); }
  bool is_images() const { return channels > 0; }
  bool is_text() const { return context > 0; }

  // Tables: the columns and classes of a CSV file for this model.
  TableSchema ToSchema() const;
  // Elements of a row in the model's input: one for each number and for each category.
  int64_t features() const;
  // Converts a row of columns.size() values, as RowSet has them, to features() elements.
  void EncodeRow(const double* values, float* input) const;

  // Tables: float64 [N, columns] with NaN for missing values -> float32 [N, features()].
  // Images: uint8 [N, C, H, W] -> float32 of the same shape. Throws c10::Error for another shape.
  torch::Tensor Input(const torch::Tensor& raw) const;
  // The numbers that a regression predicts, in the units of the training table, for outputs
  // [N, targets]. Other models: `output` itself.
  torch::Tensor Numbers(const torch::Tensor& output) const;

  // Tables: the columns in the order of the inputs. Images: empty.
  std::vector<FeatureColumn> columns;
  // Of each column or channel: an input is (value - mean) / deviation, where a value of an image is
  // its byte / 255. 0 and 1 for a category.
  std::vector<double> input_mean;
  std::vector<double> input_deviation;
  // Tables: a missing value counts as its column's mean.
  bool missing_as_mean = false;

  // Images: the shape of an input. Files of another size are stretched.
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;

  // Text: bytes or tokens that a sample spans.
  int64_t context = 0;

  // Classes to choose from; 0 for a regression.
  int64_t classes = 0;
  std::vector<std::string> class_names;  // empty: numbers
  std::string label_column;

  // A regression's numbers: a model's output is (number - mean) / deviation.
  std::vector<std::string> target_columns;
  std::vector<double> target_mean;
  std::vector<double> target_deviation;

  // Dataset::Fingerprint() of the training samples; 0: unknown.
  uint32_t training_data = 0;
};

// Returns job.data.preprocessing.
Preprocessing::Metadata GetPreprocessing(const JobSpec& job);

// Replaces job.data.preprocessing.
void SetPreprocessing(const Preprocessing::Metadata& metadata, JobSpec* job);

}  // namespace torchps
