#include "torchps/data/preprocessing.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace torchps {
namespace {

using Json = nlohmann::json;

// Uses enough digits to restore the same doubles.
std::string ToJson(const std::vector<double>& numbers) {
  return absl::StrCat("[",
                      absl::StrJoin(numbers, ", ",
                                    [](std::string* out, double number) {
                                      absl::StrAppendFormat(out, "%.17g", number);
                                    }),
                      "]");
}

// Replaces invalid UTF-8, because JSON requires UTF-8.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> GetNames(const std::vector<FeatureColumn>& columns) {
  std::vector<std::string> names;
  for (const FeatureColumn& column : columns) names.push_back(column.name);
  return names;
}

// Reads entries of a model file's metadata. Keeps the first error.
class MetadataReader {
 public:
  explicit MetadataReader(const Preprocessing::Metadata& metadata) : metadata_(metadata) {}

  const absl::Status& status() const { return status_; }

  std::string Text(const std::string& key) const {
    const auto found = metadata_.find(key);
    return found == metadata_.end() ? "" : found->second;
  }

  template <typename Integer>
  void ReadInteger(const std::string& key, Integer& value) {
    const std::string text = Text(key);
    if (!text.empty() && !absl::SimpleAtoi(text, &value)) Fail(key, "a whole number");
  }

  template <typename Value>
  void ReadList(const std::string& key, const char* expected, std::vector<Value>& values) {
    if (Text(key).empty()) return;
    try {
      values = Json::parse(Text(key)).get<std::vector<Value>>();
    } catch (const Json::exception&) {
      Fail(key, expected);
    }
  }

  // Reads the categories of each column from {"column": ["value", ...]}. Uses the column number if
  // a column does not have a name.
  void ReadCategories(const std::string& key, std::vector<FeatureColumn>& columns) {
    if (Text(key).empty()) return;
    try {
      const Json categories = Json::parse(Text(key));
      for (size_t c = 0; c < columns.size(); ++c) {
        const auto found = categories.find(GetKey(columns, c));
        if (found != categories.end()) found->get_to(columns[c].categories);
      }
    } catch (const Json::exception&) {
      Fail(key, "a JSON object of lists of texts");
    }
  }

  static std::string GetKey(const std::vector<FeatureColumn>& columns, size_t c) {
    return columns[c].name.empty() ? absl::StrCat(c) : columns[c].name;
  }

  void CheckSize(const std::string& key, size_t size, size_t expected) {
    if (size != expected) Fail(key, absl::StrCat("a list of ", expected, " numbers"));
  }

 private:
  void Fail(const std::string& key, const std::string& expected) {
    if (!status_.ok()) return;
    status_ =
        absl::InvalidArgumentError(absl::StrCat("model metadata ", key, ": expected ", expected,
                                                ", got \"", Text(key).substr(0, 80), "\""));
  }

  const Preprocessing::Metadata& metadata_;
  absl::Status status_;
};

torch::Tensor Row(const std::vector<double>& numbers, const torch::Tensor& like) {
  return torch::tensor(numbers, torch::kFloat64).to(like.device());
}

}  // namespace

absl::StatusOr<Preprocessing> Preprocessing::FromMetadata(const Metadata& metadata) {
  Preprocessing result;
  MetadataReader reader(metadata);
  const std::string columns = reader.Text("input_columns");
  std::vector<std::string> names;
  if (!columns.empty() && columns.front() != '[') {
    names = absl::StrSplit(columns, ',');  // format of older files
  } else {
    reader.ReadList("input_columns", "a list of texts", names);
  }
  for (std::string& name : names) result.columns.push_back({std::move(name)});
  reader.ReadCategories("input_categories", result.columns);
  reader.ReadList("input_mean", "a list of numbers", result.input_mean);
  reader.ReadList("input_deviation", "a list of numbers", result.input_deviation);
  result.missing_as_mean = !reader.Text("input_missing").empty();
  reader.ReadInteger("input_channels", result.channels);
  reader.ReadInteger("input_height", result.height);
  reader.ReadInteger("input_width", result.width);
  reader.ReadInteger("context", result.context);
  reader.ReadInteger("class_count", result.classes);
  reader.ReadList("classes", "a list of texts", result.class_names);
  result.label_column = reader.Text("label_column");
  reader.ReadList("target_columns", "a list of texts", result.target_columns);
  reader.ReadList("target_mean", "a list of numbers", result.target_mean);
  reader.ReadList("target_deviation", "a list of numbers", result.target_deviation);
  reader.ReadInteger("training_data", result.training_data);
  const size_t inputs = result.is_table()
                            ? result.columns.size()
                            : static_cast<size_t>(std::max<int64_t>(result.channels, 0));
  if (inputs > 0) {
    reader.CheckSize("input_mean", result.input_mean.size(), inputs);
    reader.CheckSize("input_deviation", result.input_deviation.size(), inputs);
  }
  if (!result.target_mean.empty()) {
    reader.CheckSize("target_mean", result.target_mean.size(), result.target_columns.size());
    reader.CheckSize("target_deviation", result.target_deviation.size(),
                     result.target_columns.size());
  }
  if (!reader.status().ok()) return reader.status();
  return result;
}

Preprocessing::Metadata Preprocessing::ToMetadata() const {
  Metadata metadata;
  const auto put = [&metadata](const char* key, int64_t number) {
    if (number != 0) metadata[key] = absl::StrCat(number);
  };
  if (is_table()) {
    metadata["input"] = "(value - input_mean) / input_deviation of each column";
    metadata["input_columns"] = Dump(GetNames(columns));
    Json categories = Json::object();
    for (size_t c = 0; c < columns.size(); ++c) {
      if (columns[c].categories.empty()) continue;
      categories[MetadataReader::GetKey(columns, c)] = columns[c].categories;
    }
    if (!categories.empty()) metadata["input_categories"] = Dump(categories);
    if (missing_as_mean) metadata["input_missing"] = "counts as its column's input_mean";
  }
  if (is_images())
    metadata["input"] = "(byte / 255 - input_mean) / input_deviation of each channel";
  if (!input_mean.empty()) {
    metadata["input_mean"] = ToJson(input_mean);
    metadata["input_deviation"] = ToJson(input_deviation);
  }
  put("input_channels", channels);
  put("input_height", height);
  put("input_width", width);
  put("context", context);
  put("class_count", classes);
  if (!class_names.empty()) metadata["classes"] = Dump(class_names);
  if (!label_column.empty()) metadata["label_column"] = label_column;
  if (!target_columns.empty()) {
    metadata["output"] = "(number - target_mean) / target_deviation of each target column";
    metadata["target_columns"] = Dump(target_columns);
    metadata["target_mean"] = ToJson(target_mean);
    metadata["target_deviation"] = ToJson(target_deviation);
  }
  put("training_data", training_data);
  return metadata;
}

TableSchema Preprocessing::ToSchema() const {
  return {columns, label_column, class_names, classes, target_columns};
}

int64_t Preprocessing::features() const {
  int64_t features = 0;
  for (const FeatureColumn& column : columns) {
    features += std::max<int64_t>(column.categories.size(), 1);
  }
  return features;
}

void Preprocessing::EncodeRow(const double* values, float* input) const {
  for (size_t c = 0; c < columns.size(); ++c) {
    const size_t categories = columns[c].categories.size();
    if (categories == 0) {
      const double distance = std::isnan(values[c]) ? 0.0 : values[c] - input_mean[c];
      *input++ = static_cast<float>(distance / input_deviation[c]);
      continue;
    }
    std::fill_n(input, categories, 0.0f);
    if (!std::isnan(values[c])) input[static_cast<size_t>(values[c])] = 1.0f;
    input += categories;
  }
}

torch::Tensor Preprocessing::Input(const torch::Tensor& raw) const {
  if (is_table()) {
    TORCH_CHECK(raw.dim() == 2 && raw.size(1) == static_cast<int64_t>(columns.size()),
                "expected rows of ", columns.size(), " columns, got a tensor shaped ", raw.sizes());
    const torch::Tensor rows = raw.to(torch::kCPU, torch::kFloat64).contiguous();
    torch::Tensor input = torch::empty({rows.size(0), features()}, torch::kFloat32);
    for (int64_t i = 0; i < rows.size(0); ++i) {
      EncodeRow(rows.data_ptr<double>() + i * rows.size(1),
                input.data_ptr<float>() + i * input.size(1));
    }
    return input;
  }
  if (is_images()) {
    TORCH_CHECK(raw.dim() == 4 && raw.size(1) == channels && raw.scalar_type() == torch::kUInt8,
                "expected uint8 images of ", channels, " channels, got ", raw.scalar_type(),
                " shaped ", raw.sizes());
    const auto channel = [&](const std::vector<double>& numbers) {
      return Row(numbers, raw).to(torch::kFloat32).view({1, channels, 1, 1});
    };
    return (raw.to(torch::kFloat32) / 255 - channel(input_mean)) / channel(input_deviation);
  }
  return raw;
}

torch::Tensor Preprocessing::Numbers(const torch::Tensor& output) const {
  if (target_mean.empty()) return output;
  TORCH_CHECK(output.dim() == 2 && output.size(1) == static_cast<int64_t>(target_mean.size()),
              "expected rows of ", target_mean.size(), " outputs, got a tensor shaped ",
              output.sizes());
  return output.to(torch::kFloat64) * Row(target_deviation, output) + Row(target_mean, output);
}

Preprocessing::Metadata GetPreprocessing(const JobSpec& job) {
  Preprocessing::Metadata metadata;
  for (const PreprocessingEntry& entry : job.data().preprocessing()) {
    metadata[entry.key()] = entry.value();
  }
  return metadata;
}

void SetPreprocessing(const Preprocessing::Metadata& metadata, JobSpec* job) {
  job->mutable_data()->clear_preprocessing();
  for (const auto& [key, value] : metadata) {
    PreprocessingEntry* entry = job->mutable_data()->add_preprocessing();
    entry->set_key(key);
    entry->set_value(value);
  }
}

}  // namespace torchps
