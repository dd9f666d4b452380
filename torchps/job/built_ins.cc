#include "torchps/job/built_ins.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "torchps/common/text.h"

namespace torchps {
namespace {

absl::Status CheckName(absl::string_view field, const std::string& name,
                       const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  const std::string closest = ClosestName(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("job field ", field, " is ",
                   name.empty() ? "not set" : absl::StrCat("\"", absl::CHexEscape(name), "\""),
                   "; ", closest.empty() ? "" : absl::StrCat("did you mean \"", closest, "\"? "),
                   "ps_worker has: ", absl::StrJoin(known, ", ")));
}

}  // namespace

std::vector<std::string> BuiltInModels() {
  return {"linear", "mlp", "convnet", "resnet18", "transformer"};
}

std::vector<std::string> BuiltInDataSources() {
  return {"digits", "idx", "cifar10", "images", "csv", "text", "tokens"};
}

std::vector<std::string> BuiltInMetrics() {
  return {"loss",       "accuracy", "top5_accuracy", "macro_f1", "auc",
          "perplexity", "rmse",     "mae",           "r2"};
}

absl::Status CheckBuiltInModel(const JobSpec& job) {
  return CheckName("model.name", job.model().name(), BuiltInModels());
}

absl::Status CheckBuiltInData(const JobSpec& job) {
  return CheckName("data.source", job.data().source(), BuiltInDataSources());
}

absl::Status CheckDeviceNames(absl::string_view names) {
  if (names == "auto" || names == "cuda" || names == "cuda:all") return absl::OkStatus();
  for (absl::string_view name : absl::StrSplit(names, ',')) {
    absl::string_view digits = name;
    int64_t index = 0;
    const bool known =
        name == "cpu" || (absl::ConsumePrefix(&digits, "cuda:") && !digits.empty() &&
                          std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                          absl::SimpleAtoi(digits, &index));
    if (known) continue;
    if (name == "cuda") {
      return absl::InvalidArgumentError(
          absl::StrCat("device 'cuda' of '", names,
                       "' has no index; expected an index for each GPU, as in cuda:0"));
    }
    const std::string closest = ClosestName(name, {"auto", "cpu", "cuda"});
    return absl::InvalidArgumentError(absl::StrCat(
        "device '", absl::CHexEscape(name), "' is not known; ",
        closest.empty() || closest == name ? "" : absl::StrCat("did you mean '", closest, "'? "),
        "expected auto, cpu, cuda, cuda:INDEX, cuda:all, or several, as cuda:0,cuda:1"));
  }
  return absl::OkStatus();
}

}  // namespace torchps
