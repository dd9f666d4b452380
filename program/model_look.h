#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/stop_latch.h"
#include "proto/job.pb.h"
#include "torch/types.h"
#include "worker/task.h"

namespace torchps {

// What `--evaluate` and `--predict` ask of a program: no job, no server, a trained model.
struct ModelLook {
  enum What { kEvaluate, kPredict };
  What what = kEvaluate;
  // A file that LoadState reads, or a folder with a model.safetensors.
  std::string model;
  torch::Device device = torch::kCPU;
  // What the job computes in.
  TrainingSpec::Precision precision = TrainingSpec::FLOAT32;
  // The training samples instead of the test set.
  bool on_training_data = false;
  // JSON instead of text, or of CSV.
  bool json = false;
  // The file that is written, which a line on standard output tells of; empty: standard output.
  // What is no plain file (a pipe, a device) is written to without a word.
  std::string out;
  // Borrowed; may be null.
  const StopLatch* stop = nullptr;
};

// kEvaluate: one line with the loss and every metric; as JSON, with all digits.
// kPredict: a line for each sample in their order: its number, the class where the model's output
// is a row of logits, the target where that is one number, and the output's elements. Errors are
// LoadState's, the user's code's, and those of writing. CANCELLED: `stop` has stopped. `out`
// appears when it is whole.
absl::Status LookAtModel(const Task& task, const ModelLook& look);

}  // namespace torchps
