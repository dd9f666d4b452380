#include "torchps/program/text_generation.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "torch/utils.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

absl::Status NotText(const std::string& part, const std::string& expected,
                     const torch::Tensor& got) {
  std::ostringstream shape;
  shape << got.scalar_type() << " " << got.sizes();
  return absl::FailedPreconditionError(absl::StrCat("this model does not generate text: expected ",
                                                    part, " of ", expected, ", got ", shape.str(),
                                                    "; 'psctl predict' shows its predictions"));
}

absl::Status CheckTokens(const std::vector<int64_t>& tokens, int64_t vocabulary) {
  if (tokens.empty()) return absl::InvalidArgumentError("the prompt is empty; expected a token");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat("token ", i, " of the prompt is ", tokens[i],
                                                   "; the model's vocabulary is 0 to ",
                                                   vocabulary - 1));
  }
  return absl::OkStatus();
}

// Draws a token. `logits`: float64 [vocabulary] on the CPU; the largest must be finite.
int64_t Draw(torch::Tensor logits, const Sampling& sampling, torch::Generator& generator) {
  if (sampling.temperature == 0) return logits.argmax().item<int64_t>();
  if (sampling.top_k > 0 && sampling.top_k < logits.numel()) {
    const torch::Tensor least = std::get<0>(logits.topk(sampling.top_k)).min();
    logits = logits.masked_fill(logits < least, -std::numeric_limits<double>::infinity());
  }
  // The subtraction prevents overflow at low temperatures.
  const torch::Tensor probabilities = ((logits - logits.max()) / sampling.temperature).softmax(0);
  return probabilities.multinomial(1, /*replacement=*/false, generator).item<int64_t>();
}

}  // namespace

absl::StatusOr<TextModel> TextModel::Open(const Task& task, torch::Device device,
                                          TrainingSpec::Precision precision) {
  TextModel model(task, device, precision);
  const absl::StatusOr<Batch> sample = task.data().train->Get({0});
  if (!sample.ok()) return sample.status();
  const torch::Tensor& input = sample->input;
  const bool takes_tokens =
      input.dim() == 2 && input.scalar_type() == torch::kInt64 && sample->more_inputs.empty();
  if (!takes_tokens) return NotText("inputs", "int64 [batch, positions]", input);
  try {
    const torch::Tensor output = model.Forward(input);
    if (output.dim() != 3 || output.size(0) != 1 || output.size(1) != input.size(1)) {
      return NotText("outputs", "[batch, positions, vocabulary]", output);
    }
    model.context_ = input.size(1);
    model.vocabulary_ = output.size(2);
    return model;
  } catch (...) {
    return ThrownError("the generation");
  }
}

torch::Tensor TextModel::Forward(const torch::Tensor& input) const {
  const EvaluationMode evaluation(task_.module());
  const torch::NoGradGuard no_grad;
  const Autocast autocast(precision_, device_.type());
  return task_.Forward(ToDevice({input, torch::Tensor()}, device_)).output();
}

absl::StatusOr<std::vector<int64_t>> TextModel::Continue(std::vector<int64_t> tokens,
                                                         const Sampling& sampling,
                                                         const StopLatch* stop) const {
  if (absl::Status status = CheckTokens(tokens, vocabulary_); !status.ok()) return status;
  torch::Generator generator = at::detail::createCPUGenerator(sampling.seed);
  try {
    for (int64_t i = 0; i < sampling.length; ++i) {
      if (stop != nullptr && stop->stopped()) return absl::CancelledError(stop->reason());
      const int64_t seen = std::min(context_, static_cast<int64_t>(tokens.size()));
      const torch::Tensor input =
          torch::tensor(std::vector<int64_t>(tokens.end() - seen, tokens.end()), torch::kInt64);
      const torch::Tensor logits =
          Forward(input.unsqueeze(0))[0][-1].to(torch::kCPU, torch::kFloat64);
      if (!std::isfinite(logits.max().item<double>())) {
        return absl::FailedPreconditionError(
            absl::StrCat("the model's outputs after token ", tokens.size() - 1,
                         " are not finite; its training may have diverged"));
      }
      tokens.push_back(Draw(logits, sampling, generator));
    }
    return tokens;
  } catch (...) {
    return ThrownError("the generation");
  }
}

absl::StatusOr<std::vector<int64_t>> GetTokens(const std::string& text, TokenForm form) {
  std::vector<int64_t> tokens;
  if (form == TokenForm::kBytes) {
    for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(", \t\n"), absl::SkipEmpty())) {
    int64_t token = 0;
    if (!absl::SimpleAtoi(word, &token)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the model needs token ids; expected a prompt such as \"17 4 250\", got \"", word, "\""));
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string GetText(const std::vector<int64_t>& tokens, TokenForm form) {
  if (form == TokenForm::kIds) return absl::StrJoin(tokens, " ");
  return std::string(tokens.begin(), tokens.end());
}

}  // namespace torchps
