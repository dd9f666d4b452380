#include "data/opening.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace torchps {
namespace {

template <typename Number>
std::string Numbers(const std::vector<Number>& numbers) {
  return absl::StrCat("[",
                      absl::StrJoin(numbers, ", ",
                                    [](std::string* out, Number number) {
                                      absl::StrAppendFormat(
                                          out, "%.*g", std::numeric_limits<Number>::max_digits10,
                                          number);
                                    }),
                      "]");
}

}  // namespace

bool WantsTest(const JobSpec& job) {
  return !job.training().has_evaluate() || job.training().evaluate();
}

absl::Status NeedsPath(const std::string& source, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "data.path is not set, and data.source \"%s\" needs %s; name it with --data or data.path",
      source, what));
}

std::string Counts(const DataSource& source) {
  return absl::StrCat(source.train->size(), " to train on, ",
                      source.test ? absl::StrCat(source.test->size()) : "none", " to test on");
}

std::string JsonArray(const std::vector<float>& numbers) { return Numbers(numbers); }
std::string JsonArray(const std::vector<double>& numbers) { return Numbers(numbers); }
std::string JsonArray(const std::vector<std::string>& texts) {
  // A file may have names in another encoding; JSON has none but UTF-8.
  return nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void NameClasses(const std::vector<std::string>& names, DataSource& source) {
  source.class_names = names;
  if (!names.empty()) source.transform["classes"] = JsonArray(names);
}

}  // namespace torchps
