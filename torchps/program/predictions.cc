#include "torchps/program/predictions.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "torch/nn/module.h"
#include "torch/utils.h"
#include "torchps/worker/state_file.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path) {
  std::error_code unknown;
  const bool is_special =
      std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
  std::string temporary = is_special || path.empty() ? path : absl::StrCat(path, ".tmp");
  std::FILE* const file = path.empty() ? stdout : std::fopen(temporary.c_str(), "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write --out=", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<OutputFile>(new OutputFile(file, std::move(temporary), path));
}

OutputFile::OutputFile(std::FILE* file, std::string temporary, std::string path)
    : file_(file), temporary_(std::move(temporary)), path_(std::move(path)) {}

OutputFile::~OutputFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  if (!is_whole_ && is_file()) std::remove(temporary_.c_str());
}

void OutputFile::Write(absl::string_view bytes) {
  std::fwrite(bytes.data(), 1, bytes.size(), file_);
}

void OutputFile::Line(const std::string& line) { Write(absl::StrCat(line, "\n")); }

absl::Status OutputFile::Close() {
  const bool failed = std::ferror(file_) != 0 || std::fflush(file_) != 0;
  const bool lost = (file_ != stdout && std::fclose(file_) != 0) || failed;
  file_ = nullptr;
  is_whole_ = !lost && (!is_file() || std::rename(temporary_.c_str(), path_.c_str()) == 0);
  if (is_whole_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot write ", path_.empty() ? "standard output" : path_, ": ", std::strerror(errno)));
}

namespace {

using Json = nlohmann::ordered_json;

// A model's answers to a batch, in readable units.
struct Answers {
  torch::Tensor numbers;    // float64 [B, K]
  torch::Tensor predicted;  // int64 [B]; undefined if the model does not choose a class
  torch::Tensor target;     // float64 [B, targets]; undefined if the samples lack answers
};

// Converts outputs to answers and provides the column titles.
class AnswerMaker {
 public:
  explicit AnswerMaker(const DataSource& data)
      : preprocessing_(data.preprocessing), classes_(data.test->shape().classes) {}

  Answers Make(const Batch& batch, const torch::Tensor& output) const {
    Answers answers;
    const torch::Tensor& target = batch.target;
    const bool is_regression =
        target.defined() ? target.is_floating_point() : !preprocessing_.target_columns.empty();
    answers.numbers = output.to(torch::kFloat64);
    if (is_regression) {
      answers.numbers = preprocessing_.Numbers(answers.numbers);
    } else if (output.dim() == 2 && output.size(1) > 1) {
      answers.predicted = output.argmax(1);
      if (HasProbabilities(output)) answers.numbers = answers.numbers.softmax(1);
    }
    answers.numbers = answers.numbers.reshape({output.size(0), -1}).contiguous();
    if (!target.defined()) return answers;
    if (is_regression) {
      answers.target = preprocessing_.Numbers(target.to(torch::kFloat64));
    } else if (target.numel() == target.size(0)) {
      answers.target = target.to(torch::kFloat64);
    }
    if (answers.target.defined()) {
      answers.target = answers.target.reshape({target.size(0), -1}).contiguous();
    }
    return answers;
  }

  bool HasProbabilities(const torch::Tensor& output) const {
    return classes_ > 1 && output.dim() == 2 && output.size(1) == classes_;
  }

  // Returns the column titles for one sample's numbers.
  std::vector<std::string> NumberTitles(const torch::Tensor& output, int64_t count) const {
    const bool is_probability = HasProbabilities(output);
    const bool is_number = static_cast<int64_t>(preprocessing_.target_columns.size()) == count;
    std::vector<std::string> titles;
    for (int64_t i = 0; i < count; ++i) {
      titles.push_back(is_probability ? absl::StrCat("probability_", ClassName(i))
                       : is_number    ? absl::StrCat("predicted_", TargetName(i))
                                      : absl::StrCat("output_", i));
    }
    return titles;
  }

  std::vector<std::string> TargetTitles(int64_t count) const {
    if (count == 1 && preprocessing_.target_columns.empty()) return {"target"};
    std::vector<std::string> titles;
    for (int64_t i = 0; i < count; ++i) titles.push_back(absl::StrCat("target_", TargetName(i)));
    return titles;
  }

  bool has_names() const { return !preprocessing_.class_names.empty(); }

  // Returns the class's name, or the number if it is unnamed.
  std::string ClassName(int64_t number) const {
    const std::vector<std::string>& names = preprocessing_.class_names;
    const bool is_named = number >= 0 && number < static_cast<int64_t>(names.size());
    return is_named ? names[number] : absl::StrCat(number);
  }

 private:
  std::string TargetName(int64_t i) const {
    const std::vector<std::string>& names = preprocessing_.target_columns;
    const bool is_named = i < static_cast<int64_t>(names.size()) && !names[i].empty();
    return is_named ? names[i] : absl::StrCat(i);
  }

  const Preprocessing& preprocessing_;
  const int64_t classes_;
};

// Returns a CSV field, quoted if necessary (RFC 4180).
std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// Nine digits are enough to restore the same float32.
std::string Digits(double number) { return absl::StrFormat("%.9g", number); }

// Writes one line per sample.
class LineWriter : public PredictionWriter {
 public:
  LineWriter(std::unique_ptr<OutputFile> file, const DataSource& data)
      : file_(std::move(file)), maker_(data), names_(data.sample_names) {}

  absl::Status Add(const Batch& batch, const torch::Tensor& output) override {
    const Answers answers = maker_.Make(batch, output);
    for (int64_t row = 0; row < output.size(0); ++row, ++sample_) {
      AddSample(answers, output, row);
    }
    return absl::OkStatus();
  }
  absl::Status Close() override { return file_->Close(); }

 protected:
  virtual void AddSample(const Answers& answers, const torch::Tensor& output, int64_t row) = 0;

  static std::vector<double> Row(const torch::Tensor& matrix, int64_t row) {
    const double* const first = matrix.data_ptr<double>() + row * matrix.size(1);
    return std::vector<double>(first, first + matrix.size(1));
  }

  const std::unique_ptr<OutputFile> file_;
  const AnswerMaker maker_;
  const std::vector<std::string>& names_;  // sample names; may be empty
  int64_t sample_ = 0;
};

class CsvWriter : public LineWriter {
 public:
  using LineWriter::LineWriter;

 private:
  void AddSample(const Answers& answers, const torch::Tensor& output, int64_t row) override {
    if (sample_ == 0) AddTitles(answers, output);
    std::vector<std::string> fields = {absl::StrCat(sample_)};
    if (!names_.empty()) fields.push_back(Field(names_.at(sample_)));
    if (answers.predicted.defined()) {
      fields.push_back(Field(maker_.ClassName(answers.predicted[row].item<int64_t>())));
    }
    if (answers.target.defined()) {
      for (const double target : Row(answers.target, row)) {
        fields.push_back(answers.predicted.defined()
                             ? Field(maker_.ClassName(static_cast<int64_t>(target)))
                             : Digits(target));
      }
    }
    for (const double number : Row(answers.numbers, row)) fields.push_back(Digits(number));
    file_->Line(absl::StrJoin(fields, ","));
  }

  void AddTitles(const Answers& answers, const torch::Tensor& output) {
    std::vector<std::string> titles = {"sample"};
    const auto add = [&titles](const std::vector<std::string>& more) {
      for (const std::string& title : more) titles.push_back(Field(title));
    };
    if (!names_.empty()) add({"file"});
    if (answers.predicted.defined()) add({"predicted"});
    if (answers.target.defined()) add(maker_.TargetTitles(answers.target.size(1)));
    add(maker_.NumberTitles(output, answers.numbers.size(1)));
    file_->Line(absl::StrJoin(titles, ","));
  }
};

class JsonWriter : public LineWriter {
 public:
  using LineWriter::LineWriter;

 private:
  void AddSample(const Answers& answers, const torch::Tensor& output, int64_t row) override {
    Json json = {{"sample", sample_}};
    if (!names_.empty()) json["file"] = names_.at(sample_);
    if (answers.predicted.defined()) {
      json["predicted"] = Class(answers.predicted[row].item<int64_t>());
    }
    if (answers.target.defined()) {
      const std::vector<double> targets = Row(answers.target, row);
      if (answers.predicted.defined()) {
        json["target"] = Class(static_cast<int64_t>(targets[0]));
      } else if (targets.size() == 1) {
        json["target"] = targets[0];
      } else {
        json["target"] = targets;
      }
    }
    const bool has_probabilities = answers.predicted.defined() && maker_.HasProbabilities(output);
    json[has_probabilities ? "probabilities" : "output"] = Row(answers.numbers, row);
    // Class names may use another encoding than JSON.
    file_->Line(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  Json Class(int64_t number) const {
    return maker_.has_names() ? Json(maker_.ClassName(number)) : Json(number);
  }
};

// Collects all answers before writing, because these formats begin with the number of samples.
class TensorWriter : public PredictionWriter {
 public:
  TensorWriter(std::string path, PredictionForm form, const DataSource& data)
      : path_(std::move(path)), form_(form), maker_(data) {}

  absl::Status Add(const Batch& batch, const torch::Tensor& output) override {
    const Answers answers = maker_.Make(batch, output);
    if (!numbers_.empty() && numbers_.front().size(1) != answers.numbers.size(1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": expected ", numbers_.front().size(1), " numbers for each sample, got ",
          answers.numbers.size(1), "; write .csv or .jsonl"));
    }
    numbers_.push_back(answers.numbers.to(torch::kFloat32));
    if (answers.predicted.defined()) predicted_.push_back(answers.predicted);
    if (answers.target.defined()) {
      targets_.push_back(
          answers.target.to(answers.predicted.defined() ? torch::kInt64 : torch::kFloat32));
    }
    return absl::OkStatus();
  }

  absl::Status Close() override {
    const torch::Tensor numbers = torch::cat(numbers_).contiguous();
    if (form_ == PredictionForm::kNumpy) return WriteNumpy(numbers);
    torch::nn::Module holder;
    holder.register_buffer("output", numbers);
    if (!predicted_.empty()) holder.register_buffer("predicted", torch::cat(predicted_));
    if (!targets_.empty()) holder.register_buffer("target", torch::cat(targets_).contiguous());
    return SaveState(holder, path_);
  }

 private:
  // Writes version 1.0 of NumPy's format (NEP 1): magic, header length, header, numbers.
  absl::Status WriteNumpy(const torch::Tensor& numbers) const {
    absl::StatusOr<std::unique_ptr<OutputFile>> file = OutputFile::Open(path_);
    if (!file.ok()) return file.status();
    std::string header =
        absl::StrFormat("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }",
                        numbers.size(0), numbers.size(1));
    constexpr size_t kBefore = 10;  // magic and length
    constexpr size_t kAlignment = 64;
    while ((kBefore + header.size() + 1) % kAlignment != 0) header += ' ';
    header += '\n';
    const auto length = static_cast<unsigned>(header.size());
    (*file)->Write(absl::string_view("\x93NUMPY\x01\x00", 8));
    (*file)->Write(std::string{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)});
    (*file)->Write(header);
    (*file)->Write({static_cast<const char*>(numbers.data_ptr()), numbers.nbytes()});
    return (*file)->Close();
  }

  const std::string path_;
  const PredictionForm form_;
  const AnswerMaker maker_;
  std::vector<torch::Tensor> numbers_;
  std::vector<torch::Tensor> predicted_;
  std::vector<torch::Tensor> targets_;
};

}  // namespace

PredictionForm GetForm(const std::string& path, bool json) {
  if (absl::EndsWith(path, ".npy")) return PredictionForm::kNumpy;
  if (absl::EndsWith(path, ".safetensors")) return PredictionForm::kSafetensors;
  return json || absl::EndsWith(path, ".jsonl") ? PredictionForm::kJsonLines : PredictionForm::kCsv;
}

absl::StatusOr<std::unique_ptr<PredictionWriter>> PredictionWriter::Open(const std::string& path,
                                                                         bool json,
                                                                         const DataSource& data) {
  const PredictionForm form = GetForm(path, json);
  if (form == PredictionForm::kNumpy || form == PredictionForm::kSafetensors) {
    return std::make_unique<TensorWriter>(path, form, data);
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> file = OutputFile::Open(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<PredictionWriter> writer;
  if (form == PredictionForm::kCsv) {
    writer = std::make_unique<CsvWriter>(*std::move(file), data);
  } else {
    writer = std::make_unique<JsonWriter>(*std::move(file), data);
  }
  return writer;
}

}  // namespace torchps
