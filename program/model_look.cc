#include "program/model_look.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "torch/utils.h"
#include "worker/model_use.h"
#include "worker/state_file.h"

namespace torchps {
namespace {

using Json = nlohmann::ordered_json;

// Names may be in another encoding than JSON's.
std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Where the lines go.
class Out {
 public:
  static absl::StatusOr<std::unique_ptr<Out>> Open(const std::string& path) {
    // A pipe or a device is written to as it is.
    std::error_code unknown;
    const bool is_special =
        std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
    const std::string place = is_special || path.empty() ? path : absl::StrCat(path, ".tmp");
    std::FILE* const file = path.empty() ? stdout : std::fopen(place.c_str(), "w");
    if (file == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write --out=", path, ": ", std::strerror(errno)));
    }
    return std::make_unique<Out>(file, place, path);
  }
  // Into `place`, which is `path` when it is whole.
  Out(std::FILE* file, std::string place, std::string path)
      : file_(file), place_(std::move(place)), path_(std::move(path)) {}
  ~Out() {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
    if (!is_whole_ && place_ != path_) std::remove(place_.c_str());
  }

  // A file that is there when all is well, and nothing else tells so.
  bool is_file() const { return place_ != path_; }

  void Line(const std::string& line) { std::fprintf(file_, "%s\n", line.c_str()); }

  absl::Status Close() {
    const bool failed = std::ferror(file_) != 0 || std::fflush(file_) != 0;
    const bool lost = (file_ != stdout && std::fclose(file_) != 0) || failed;
    file_ = nullptr;
    is_whole_ = !lost && (place_ == path_ || std::rename(place_.c_str(), path_.c_str()) == 0);
    if (is_whole_) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot write ", path_.empty() ? "standard output" : path_, ": ", std::strerror(errno)));
  }

 private:
  std::FILE* file_;
  const std::string place_;
  const std::string path_;
  bool is_whole_ = false;
};

std::string EvaluationLine(const Evaluation& evaluation, const ModelLook& look) {
  if (look.json) {
    Json json = {{"model", look.model},
                 {"samples", evaluation.samples},
                 {"loss", evaluation.loss},
                 {"metrics", Json::object()}};
    for (const Evaluation::Value& metric : evaluation.metrics) {
      json["metrics"][metric.name] = metric.value;
    }
    return Dumped(json);
  }
  std::string line = absl::StrFormat("loss %.6g", evaluation.loss);
  for (const Evaluation::Value& metric : evaluation.metrics) {
    absl::StrAppendFormat(&line, ", %s %.6g", metric.name, metric.value);
  }
  absl::StrAppend(&line, " on ", evaluation.samples, " samples");
  return line;
}

// What is told of one sample.
class SampleLine {
 public:
  // `names`: of the classes, where they have any.
  SampleLine(const torch::Tensor& output, const torch::Tensor& target, int64_t row,
             const std::vector<std::string>& names)
      : names_(names), output_(output[row].to(torch::kFloat64).flatten().contiguous()) {
    // What is compared with numbers is itself one, and no choice.
    const bool chooses = !target.defined() || !target.is_floating_point();
    if (chooses && output.dim() == 2 && output.size(1) > 1) {
      predicted_ = output[row].argmax().item<int64_t>();
    }
    if (!target.defined() || (chooses && target[row].numel() != 1)) return;
    targets_ = target[row].to(torch::kFloat64).flatten().contiguous();
  }

  std::string Titles() const {
    std::string line = "sample";
    if (predicted_.has_value()) absl::StrAppend(&line, ",predicted");
    if (targets() == 1) absl::StrAppend(&line, ",target");
    for (int64_t i = 0; i < targets() && targets() > 1; ++i) {
      absl::StrAppend(&line, ",target_", i);
    }
    for (int64_t i = 0; i < output_.numel(); ++i) absl::StrAppend(&line, ",output_", i);
    return line;
  }

  // Nine digits give the same float32 back.
  std::string Csv(int64_t sample) const {
    std::string line = absl::StrCat(sample);
    if (predicted_.has_value()) absl::StrAppend(&line, ",", Class(*predicted_));
    for (int64_t i = 0; i < targets(); ++i) {
      const double target = targets_.data_ptr<double>()[i];
      absl::StrAppend(
          &line, ",",
          is_named() ? Class(static_cast<int64_t>(target)) : absl::StrFormat("%.9g", target));
    }
    for (int64_t i = 0; i < output_.numel(); ++i) {
      absl::StrAppendFormat(&line, ",%.9g", output_.data_ptr<double>()[i]);
    }
    return line;
  }

  std::string JsonLine(int64_t sample) const {
    Json json = {{"sample", sample}};
    if (is_named()) {
      json["predicted"] = names_.at(*predicted_);
      if (targets() == 1) json["target"] = names_.at(static_cast<size_t>(targets_.item<double>()));
    } else {
      if (predicted_.has_value()) json["predicted"] = *predicted_;
      if (targets() == 1) json["target"] = targets_.item<double>();
    }
    if (targets() > 1) {
      const double* const first = targets_.data_ptr<double>();
      json["target"] = std::vector<double>(first, first + targets());
    }
    const double* const begin = output_.data_ptr<double>();
    json["output"] = std::vector<double>(begin, begin + output_.numel());
    return Dumped(json);
  }

 private:
  int64_t targets() const { return targets_.defined() ? targets_.numel() : 0; }
  bool is_named() const {
    return predicted_.has_value() && static_cast<size_t>(output_.numel()) == names_.size();
  }

  // A class's name, in quotes where CSV needs them, or its number.
  std::string Class(int64_t number) const {
    if (!is_named()) return absl::StrCat(number);
    const std::string& name = names_.at(number);
    if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
    return absl::StrCat("\"", absl::StrReplaceAll(name, {{"\"", "\"\""}}), "\"");
  }

  const std::vector<std::string>& names_;
  const torch::Tensor output_;
  absl::optional<int64_t> predicted_;
  torch::Tensor targets_;  // undefined: not told
};

absl::Status WritePredictions(const Task& task, const Dataset& samples, const ModelLook& look,
                              Out& out) {
  int64_t sample = 0;
  const auto write = [&](const Batch& batch, const torch::Tensor& output) {
    for (int64_t row = 0; row < output.size(0); ++row, ++sample) {
      const SampleLine line(output, batch.target, row, task.data().class_names);
      if (sample == 0 && !look.json) out.Line(line.Titles());
      out.Line(look.json ? line.JsonLine(sample) : line.Csv(sample));
    }
    return absl::OkStatus();
  };
  return Predict(task, samples, look.device, look.precision, write, look.stop);
}

}  // namespace

absl::Status LookAtModel(const Task& task, const ModelLook& look) {
  // What cannot be looked at is told when it is read.
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(look.model, ignored);
  const std::string file = is_folder ? absl::StrCat(look.model, "/model.safetensors") : look.model;
  if (absl::Status loaded = LoadState(task.module(), file); !loaded.ok()) return loaded;
  task.module().to(look.device);
  const Dataset* const samples =
      (look.on_training_data ? task.data().train : task.data().test).get();
  if (samples == nullptr || samples->size() == 0) {
    return absl::FailedPreconditionError(look.on_training_data
                                             ? "the job's data have no training samples"
                                             : "the job's data have no test samples; "
                                               "--on_training_data takes the others");
  }
  const absl::StatusOr<std::unique_ptr<Out>> out = Out::Open(look.out);
  if (!out.ok()) return out.status();
  if (look.what == ModelLook::kPredict) {
    const absl::Status written = WritePredictions(task, *samples, look, **out);
    if (!written.ok()) return written;
  } else {
    const absl::StatusOr<Evaluation> evaluation =
        Evaluate(task, samples, look.device, look.precision, look.stop);
    if (!evaluation.ok()) return evaluation.status();
    (*out)->Line(EvaluationLine(*evaluation, look));
  }
  if (absl::Status closed = (*out)->Close(); !closed.ok() || !(*out)->is_file()) return closed;
  std::printf("wrote the %s of %lld %s samples to %s\n",
              look.what == ModelLook::kPredict ? "predictions" : "evaluation",
              static_cast<long long>(samples->size()), look.on_training_data ? "training" : "test",
              look.out.c_str());
  return absl::OkStatus();
}

}  // namespace torchps
