#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torchps/common/stop_latch.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/task.h"

namespace torchps {

// Parameters for drawing tokens from a model's probabilities.
struct Sampling {
  int64_t length = 200;      // tokens to add
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // draw among the k most likely tokens; 0: among all tokens
  int64_t seed = 1;
};

// Generates text with a language model: a module with input int64 [batch, positions] and output
// [batch, positions, vocabulary]. Borrows the task. Not thread-safe.
class TextModel {
 public:
  // Runs the module on a training sample to determine the context and vocabulary sizes.
  // FAILED_PRECONDITION: the module's input or output shapes do not fit. Also returns the errors of
  // the dataset and the module.
  static absl::StatusOr<TextModel> Open(const Task& task, torch::Device device,
                                        TrainingSpec::Precision precision);

  // Appends sampling.length tokens to `tokens`. For each token, the module's input is the last
  // tokens, at most as many as a training sample has. The same seed always gives the same tokens.
  // INVALID_ARGUMENT: `tokens` is empty, or a token is outside the vocabulary. FAILED_PRECONDITION:
  // the outputs are not finite. CANCELLED: `stop`, which may be null, was stopped.
  absl::StatusOr<std::vector<int64_t>> Continue(std::vector<int64_t> tokens,
                                                const Sampling& sampling,
                                                const StopLatch* stop = nullptr) const;

  int64_t context() const { return context_; }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  TextModel(const Task& task, torch::Device device, TrainingSpec::Precision precision)
      : task_(task), device_(device), precision_(precision) {}

  torch::Tensor Forward(const torch::Tensor& input) const;

  const Task& task_;
  const torch::Device device_;
  const TrainingSpec::Precision precision_;
  int64_t context_ = 0;
  int64_t vocabulary_ = 0;
};

// The text form of tokens: bytes, or token ids in decimal digits, separated by spaces.
enum class TokenForm { kBytes, kIds };
// INVALID_ARGUMENT: a word in `text` is not a token id.
absl::StatusOr<std::vector<int64_t>> GetTokens(const std::string& text, TokenForm form);
std::string GetText(const std::vector<int64_t>& tokens, TokenForm form);

}  // namespace torchps
