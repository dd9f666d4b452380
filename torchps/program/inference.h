#pragma once

#include <string>

#include "absl/status/status.h"
#include "torch/types.h"
#include "torchps/common/stop_latch.h"
#include "torchps/program/text_generation.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/task.h"

namespace torchps {

// A request of `--evaluate`, `--predict` or `--generate` for a trained model. It does not need a
// running job.
struct InferenceRequest {
  enum What { kEvaluate, kPredict, kGenerate };
  What what = kEvaluate;
  // A file that LoadState can read, or a folder that contains model.safetensors.
  std::string model;
  torch::Device device = torch::kCPU;
  // The job's precision.
  TrainingSpec::Precision precision = TrainingSpec::FLOAT32;
  // Use the training samples instead of the test set.
  bool on_training_data = false;
  // kPredict only: job.data.path names samples to predict, in file order. They may lack answers.
  bool has_new_data = false;
  // kGenerate only.
  std::string prompt;
  Sampling sampling;
  // kGenerate only: read and write token ids. If false, a vocabulary of 256 tokens means bytes.
  bool has_token_ids = false;
  // Write JSON instead of text or CSV.
  bool json = false;
  // The output file; empty means standard output.
  std::string out;
  // Borrowed; may be null.
  const StopLatch* stop = nullptr;
};

// Prepares the job for the request: adds the preprocessing in the model file's metadata, and
// selects the data to open. Call it before opening the job's data. FAILED_PRECONDITION: the request
// is kGenerate, but the job's data are not text. Also returns GetMetadata's errors.
absl::Status PrepareJob(const InferenceRequest& look, JobSpec* job);

// Runs the request and writes the result:
//   - kEvaluate writes one line with the loss and all metrics. In JSON, numbers are unrounded, and
//     a model that chooses a class adds the confusion matrix: row t, column p counts samples of
//     class t predicted as p.
//   - kPredict writes the answer to each sample (torchps/program/predictions.h). The file appears when it
//     is complete.
//   - kGenerate writes the prompt and the continuation: bytes if the vocabulary is 256, else token
//     ids.
//
// Returns the errors of LoadState, of the user's code, and of writing. CANCELLED: `stop` was
// stopped.
absl::Status RunInference(const Task& task, const InferenceRequest& look);

}  // namespace torchps
