#include "torchps/program/inference.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/preprocessing.h"
#include "torchps/program/predictions.h"
#include "torchps/program/text_generation.h"
#include "torchps/worker/model_use.h"
#include "torchps/worker/state_file.h"

namespace torchps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kByteValues = 256;

// Replaces invalid UTF-8, because names may use another encoding than JSON.
std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns the rows of a square matrix in row-major order.
std::vector<std::vector<double>> Square(const std::vector<double>& elements) {
  const auto side = static_cast<size_t>(std::lround(std::sqrt(elements.size())));
  std::vector<std::vector<double>> rows;
  for (size_t row = 0; row < side; ++row) {
    const auto first = elements.begin() + static_cast<std::ptrdiff_t>(row * side);
    rows.emplace_back(first, first + static_cast<std::ptrdiff_t>(side));
  }
  return rows;
}

std::string EvaluationLine(const Evaluation& evaluation, const InferenceRequest& request,
                           const std::string& samples) {
  if (request.json) {
    Json json = {{"model", request.model},
                 {"samples", evaluation.samples},
                 {"data", samples},
                 {"loss", evaluation.loss},
                 {"metrics", Json::object()}};
    for (const Evaluation::Value& metric : evaluation.metrics) {
      json["metrics"][metric.name] = metric.value;
      if (metric.name == MacroF1(0).name) json["confusion"] = Square(metric.state);
    }
    return Dumped(json);
  }
  std::string line = absl::StrFormat("loss %.6g", evaluation.loss);
  for (const Evaluation::Value& metric : evaluation.metrics) {
    absl::StrAppendFormat(&line, ", %s %.6g", metric.name, metric.value);
  }
  absl::StrAppend(&line, " on ", evaluation.samples, " samples");
  if (!samples.empty()) absl::StrAppend(&line, ": ", samples);
  return line;
}

// Returns the requested samples. FAILED_PRECONDITION: there are no such samples.
absl::StatusOr<const Dataset*> GetSamples(const Task& task, const InferenceRequest& request) {
  const DataSource& data = task.data();
  if (request.has_new_data && data.test_description.empty()) {
    return absl::FailedPreconditionError(
        "the program opens its own data, so it cannot predict the file named here; leave out the "
        "file to predict the program's test set");
  }
  const Dataset* const samples = (request.on_training_data ? data.train : data.test).get();
  if (samples != nullptr && samples->size() > 0) return samples;
  return absl::FailedPreconditionError(request.on_training_data
                                           ? "the job's data have no training samples"
                                           : "the job's data have no test samples; "
                                             "--on_training_data uses the training samples");
}

absl::Status WritePredictions(const Task& task, const Dataset& samples,
                              const InferenceRequest& request) {
  absl::StatusOr<std::unique_ptr<PredictionWriter>> writer =
      PredictionWriter::Open(request.out, request.json, task.data());
  if (!writer.ok()) return writer.status();
  const auto write = [&writer](const Batch& batch, const torch::Tensor& output) {
    return (*writer)->Add(batch, output);
  };
  const absl::Status written =
      Predict(task, samples, request.device, request.precision, write, request.stop);
  return written.ok() ? (*writer)->Close() : written;
}

absl::Status WriteEvaluation(const Task& task, const Dataset& samples,
                             const InferenceRequest& request) {
  const absl::StatusOr<std::unique_ptr<OutputFile>> out = OutputFile::Open(request.out);
  if (!out.ok()) return out.status();
  const absl::StatusOr<Evaluation> evaluation =
      Evaluate(task, &samples, request.device, request.precision, request.stop);
  if (!evaluation.ok()) return evaluation.status();
  // With data.use EVALUATION or PREDICTION, `train` may be the test dataset, which holds no
  // training samples.
  const bool is_trained_on = request.on_training_data && task.data().train != task.data().test;
  const std::string described =
      is_trained_on ? "the training samples" : task.data().test_description;
  (*out)->Line(EvaluationLine(*evaluation, request, described));
  return (*out)->Close();
}

// Prepares the data of a model that accepts a prompt instead of samples.
absl::Status PrepareGeneration(DataSpec& data) {
  if (data.source() != "text" && data.source() != "tokens") {
    return absl::FailedPreconditionError(
        absl::StrCat("this model does not generate text: it was trained on data.source \"",
                     data.source(), "\"; 'psctl predict' shows its predictions"));
  }
  data.set_use(PREDICTION);
  data.clear_path();
  return absl::OkStatus();
}

absl::Status WriteText(const Task& task, const InferenceRequest& request) {
  const absl::StatusOr<TextModel> model = TextModel::Open(task, request.device, request.precision);
  if (!model.ok()) return model.status();
  const bool has_bytes = model->vocabulary() == kByteValues && !request.has_token_ids;
  const TokenForm form = has_bytes ? TokenForm::kBytes : TokenForm::kIds;
  const absl::StatusOr<std::vector<int64_t>> prompt = GetTokens(request.prompt, form);
  if (!prompt.ok()) return prompt.status();
  const absl::StatusOr<std::vector<int64_t>> tokens =
      model->Continue(*prompt, request.sampling, request.stop);
  if (!tokens.ok()) return tokens.status();
  const absl::StatusOr<std::unique_ptr<OutputFile>> out = OutputFile::Open(request.out);
  if (!out.ok()) return out.status();
  (*out)->Line(GetText(*tokens, form));
  return (*out)->Close();
}

}  // namespace

absl::Status PrepareJob(const InferenceRequest& request, JobSpec* job) {
  // The evaluation needs a test set, even if the job trains without one.
  job->mutable_training()->set_evaluate(true);
  const absl::StatusOr<Preprocessing::Metadata> metadata =
      GetMetadata(MakeModelFile(request.model));
  if (!metadata.ok()) return metadata.status();
  DataSpec& data = *job->mutable_data();
  SetPreprocessing(*metadata, job);
  if (request.what == InferenceRequest::kGenerate && HasPreprocessing(*job)) {
    return PrepareGeneration(data);
  }
  if (request.has_new_data) {
    data.set_use(PREDICTION);
  } else if (HasPreprocessing(*job)) {
    data.set_use(EVALUATION);
  }
  return absl::OkStatus();
}

absl::Status RunInference(const Task& task, const InferenceRequest& request) {
  const absl::Status loaded = LoadState(task.module(), MakeModelFile(request.model));
  if (!loaded.ok()) return loaded;
  task.module().to(request.device);
  if (request.what == InferenceRequest::kGenerate) return WriteText(task, request);
  const absl::StatusOr<const Dataset*> samples = GetSamples(task, request);
  if (!samples.ok()) return samples.status();
  const bool predicts = request.what == InferenceRequest::kPredict;
  const absl::Status written = predicts ? WritePredictions(task, **samples, request)
                                        : WriteEvaluation(task, **samples, request);
  std::error_code unknown;
  if (!written.ok() || !std::filesystem::is_regular_file(request.out, unknown)) return written;
  std::printf("wrote the %s of %lld %s samples to %s\n", predicts ? "predictions" : "evaluation",
              static_cast<long long>((*samples)->size()),
              request.has_new_data       ? "new"
              : request.on_training_data ? "training"
                                         : "test",
              request.out.c_str());
  return absl::OkStatus();
}

}  // namespace torchps
