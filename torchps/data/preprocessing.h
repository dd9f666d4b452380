#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/data/table/csv.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Converts samples to a model's inputs, and outputs to answers, with parameters measured on the
// training samples. It belongs to the model: the job contains it (JobSpec.data.preprocessing),
// model files store it as metadata, and evaluations and predictions apply it.
//
//   auto net = std::make_shared<Net>();
//   absl::StatusOr<torchps::Preprocessing> model = torchps::LoadModel(*net, "model.safetensors");
//   torch::Tensor numbers = model->Numbers(net->forward(model->Input(raw)));
//
// Copyable.
struct Preprocessing {
  // The entries of a model file's metadata; see docs/storage.md.
  using Metadata = std::map<std::string, std::string>;

  // Ignores unknown entries. INVALID_ARGUMENT: an entry is invalid; the message names it.
  static absl::StatusOr<Preprocessing> FromMetadata(const Metadata& metadata);
  // Returns the entries for a model file's metadata.
  Metadata ToMetadata() const;

  // True for rows of a table.
  bool is_table() const { return !columns.empty(); }
  // True for images.
  bool is_images() const { return channels > 0; }
  // True for bytes or tokens.
  bool is_text() const { return context > 0; }

  // Tables: returns the columns and classes of a CSV file for this model.
  TableSchema ToSchema() const;
  // Returns the length of a row in the model's input: one element per number and per category
  // value.
  int64_t features() const;
  // Converts a row of columns.size() values, as in RowSet, to features() elements.
  void EncodeRow(const double* values, float* input) const;

  // Converts raw samples to the model's input. Tables: float64 [N, columns] with NaN for missing
  // values -> float32 [N, features()]. Images: uint8 [N, C, H, W] -> float32 of the same shape.
  // Throws c10::Error for other shapes.
  torch::Tensor Input(const torch::Tensor& raw) const;
  // Returns the numbers that a regression predicts, in the units of the training table, for outputs
  // [N, targets]. For other models, returns `output`.
  torch::Tensor Numbers(const torch::Tensor& output) const;

  // Tables: the columns in input order. Images: empty.
  std::vector<FeatureColumn> columns;
  // Per column or channel: an input is (value - mean) / deviation. For images, value is the byte /
  // 255. Categories use 0 and 1.
  std::vector<double> input_mean;
  std::vector<double> input_deviation;  // see input_mean
  // Tables: replaces a missing value by the column's mean.
  bool missing_as_mean = false;

  // Images: the input shape. Files of another size are stretched.
  int64_t channels = 0;
  int64_t height = 0;  // of images, in pixels
  int64_t width = 0;   // of images, in pixels

  // Text: bytes or tokens in a sample's input.
  int64_t context = 0;

  // Number of classes; 0 for a regression.
  int64_t classes = 0;
  std::vector<std::string> class_names;  // empty: classes are numbers
  std::string label_column;              // tables: the column with the class

  // Regression: the columns to predict. A model's output is (number - mean) / deviation.
  std::vector<std::string> target_columns;
  std::vector<double> target_mean;       // per target column
  std::vector<double> target_deviation;  // per target column

  // Dataset::Fingerprint() of the training samples; 0: unknown.
  uint32_t training_data = 0;
};

// Returns job.data.preprocessing.
Preprocessing::Metadata GetPreprocessing(const JobSpec& job);

// Replaces job.data.preprocessing.
void SetPreprocessing(const Preprocessing::Metadata& metadata, JobSpec* job);

}  // namespace torchps
