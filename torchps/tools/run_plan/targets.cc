#include "torchps/tools/run_plan/targets.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "torchps/common/text.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/report/report_text.h"

namespace torchps {
namespace {

using Json = nlohmann::json;

// A line in the format of torchps/program/live_evaluator.h.
struct Line {
  double seconds = 0;
  int64_t samples = 0;
  int64_t pushes = 0;
  std::map<std::string, double> values;  // finite values
  std::set<std::string> names;           // including non-finite values
  std::set<std::string> lower_is_better;
};

absl::StatusOr<Line> ParseLine(absl::string_view text) {
  try {
    const Json json = Json::parse(text.begin(), text.end());
    Line line;
    line.seconds = json.at("seconds").get<double>();
    line.samples = json.at("samples_used").get<int64_t>();
    line.pushes = json.at("pushes").get<int64_t>();
    Json values = json.at("metrics");
    values["loss"] = json.at("loss");
    for (const auto& [name, value] : values.items()) {
      line.names.insert(name);
      // Non-finite values are null.
      if (value.is_number()) line.values[name] = value.get<double>();
    }
    for (const Json& name : json.at("lower_is_better")) {
      line.lower_is_better.insert(name.get<std::string>());
    }
    return line;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the evaluator wrote '", text, "', which is not a measurement: ", error.what()));
  }
}

std::string Row(const Line& line) {
  std::string text = absl::StrCat("after ", FormatSeconds(line.seconds));
  for (const auto& [name, value] : line.values) {
    if (name == "loss") continue;
    absl::StrAppend(&text, "   test ", name, " ",
                    name == "accuracy" ? FormatPercent(value, 2) : absl::StrCat(value));
  }
  const auto loss = line.values.find("loss");
  absl::StrAppend(&text, "   test loss ",
                  loss == line.values.end() ? "not finite" : absl::StrCat(loss->second));
  return text;
}

// INVALID_ARGUMENT: the value of a fraction looks like a percentage.
absl::Status CheckFraction(const std::string& metric, double value) {
  if (!absl::EndsWith(metric, "accuracy") || value <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--target=", metric, ":", value, ": expected a fraction from 0 to 1",
                   value <= 100 ? absl::StrCat(", as ", metric, ":", value / 100) : ""));
}

absl::Status NotMeasured(const Report::Target& target, const std::vector<std::string>& names) {
  const std::string closest = ClosestName(target.metric(), names);
  return absl::InvalidArgumentError(absl::StrCat(
      "--target=", target.metric(), ":", target.value(), ": the program does not measure that; ",
      closest.empty() ? "" : absl::StrCat("did you mean ", closest, "? "), "it measures ",
      absl::StrJoin(names, ", ")));
}

bool Meets(const Line& line, const Report::Target& target) {
  const auto found = line.values.find(target.metric());
  if (found == line.values.end()) return false;
  return line.lower_is_better.count(target.metric()) > 0 ? found->second <= target.value()
                                                         : found->second >= target.value();
}

}  // namespace

absl::StatusOr<Targets> Targets::Parse(const std::vector<std::string>& values) {
  Targets targets;
  for (const std::string& value : values) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(value, absl::MaxSplits(':', 1));
    double number = 0;
    if (parts.first.empty() || !absl::SimpleAtod(parts.second, &number) || !std::isfinite(number)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--target=", value, ": expected METRIC:VALUE, as accuracy:0.98 or loss:2.5"));
    }
    if (absl::Status valid = CheckFraction(parts.first, number); !valid.ok()) return valid;
    const auto is_same = [&](const Report::Target& known) {
      return known.metric() == parts.first && known.value() == number;
    };
    if (std::any_of(targets.targets_.begin(), targets.targets_.end(), is_same)) {
      return absl::InvalidArgumentError(absl::StrCat("--target=", value, " is given twice"));
    }
    Report::Target target;
    target.set_metric(parts.first);
    target.set_value(number);
    targets.targets_.push_back(std::move(target));
  }
  return targets;
}

absl::Status Targets::CheckMetrics(const std::vector<std::string>& names) const {
  for (const Report::Target& target : targets_) {
    if (std::count(names.begin(), names.end(), target.metric()) == 0) {
      return NotMeasured(target, names);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Targets::Heard> Targets::Hear(absl::string_view text) {
  const absl::StatusOr<Line> line = ParseLine(text);
  if (!line.ok()) return line.status();
  Heard heard;
  heard.row = Row(*line);
  for (Report::Target& target : targets_) {
    if (line->names.count(target.metric()) == 0) {
      return NotMeasured(target, {line->names.begin(), line->names.end()});
    }
    if (target.has_seconds() || !Meets(*line, target)) continue;
    target.set_seconds(line->seconds);
    target.set_samples(line->samples);
    target.set_pushes(line->pushes);
    heard.lines.push_back(TargetText(target));
  }
  return heard;
}

bool IsMeasured(absl::string_view line) { return absl::StartsWith(line, "{\"seconds\":"); }

}  // namespace torchps
