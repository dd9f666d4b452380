#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/stop_latch.h"
#include "program/text_generation.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/task.h"

namespace torchps {

// A request of `--evaluate`, `--predict` or `--generate`: a trained model, no job that runs.
struct InferenceRequest {
  enum What { kEvaluate, kPredict, kGenerate };
  What what = kEvaluate;
  // A file that LoadState reads, or a folder with a model.safetensors.
  std::string model;
  torch::Device device = torch::kCPU;
  // As the job computes.
  TrainingSpec::Precision precision = TrainingSpec::FLOAT32;
  // The training samples instead of the test set.
  bool on_training_data = false;
  // With kPredict: job.data.path names samples that are predicted in their order, all of them.
  // They may lack answers.
  bool has_new_data = false;
  // With kGenerate.
  std::string prompt;
  Sampling sampling;
  // With kGenerate: token ids also where the vocabulary is as large as a byte's.
  bool has_token_ids = false;
  // JSON instead of text, or of CSV.
  bool json = false;
  // The file to write; empty: standard output.
  std::string out;
  // Borrowed; may be null.
  const StopLatch* stop = nullptr;
};

// Adds the preprocessing in the model file's metadata to the job, before its data are opened.
// INVALID_ARGUMENT: the file's metadata cannot be read. FAILED_PRECONDITION: kGenerate, and the
// model was trained on other data than text. Others as in GetMetadata.
absl::Status PrepareJob(const InferenceRequest& look, JobSpec* job);

// kEvaluate writes one line: the loss and every metric. As JSON it has all digits, and of a model
// that chooses a class the confusion matrix: row t, column p counts samples of class t that were
// predicted as p.
// kPredict writes the answer to each sample (program/predictions.h). The file appears when it is
// whole.
// kGenerate writes the prompt and its continuation: bytes if the vocabulary is 256, else token ids.
// Errors: those of LoadState, of the user's code, and of writing. CANCELLED: `stop` stopped.
absl::Status RunInference(const Task& task, const InferenceRequest& look);

}  // namespace torchps
