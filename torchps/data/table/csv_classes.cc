#include "torchps/data/table/csv_classes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/table/csv_field.h"
#include "torchps/data/table/csv_layout.h"

namespace torchps {
namespace {

constexpr double kMaxWhole = 1e15;  // a double is exact up to this
// If a column has more distinct numbers than this, they are classes only if they repeat. Otherwise
// they are probably values to predict.
constexpr size_t kFewClasses = 100;

// Returns the whole number in a text such as "3", "3.0" or "-1"; NaN for other texts.
double WholeNumber(const std::string& text) {
  double number;
  const bool is_whole = absl::SimpleAtod(text, &number) && std::abs(number) <= kMaxWhole &&
                        number == std::floor(number);
  return is_whole ? number : std::numeric_limits<double>::quiet_NaN();
}

std::string GetName(double whole) { return absl::StrFormat("%.0f", whole + 0.0); }

// Returns the index in `sorted` of each of `values`. REQUIRES: `sorted` contains all of them.
template <typename Values, typename Sorted>
std::vector<int32_t> GetPlaces(const Values& values, const Sorted& sorted) {
  std::vector<int32_t> places;
  for (const auto& value : values) {
    places.push_back(absl::c_lower_bound(sorted, value) - sorted.begin());
  }
  return places;
}

CsvClasses NoClasses(size_t texts, std::string expected) {
  return {{}, std::vector<int32_t>(texts, -1), std::move(expected)};
}

}  // namespace

CsvClasses NumberClasses(const std::vector<std::string>& texts, int64_t rows) {
  CsvClasses classes;
  if (!absl::c_all_of(texts, IsNumber)) {
    classes.names = texts;
    absl::c_sort(classes.names);
    classes.of_text = GetPlaces(texts, classes.names);
    return classes;
  }
  std::vector<double> numbers;
  for (const std::string& text : texts) numbers.push_back(WholeNumber(text));
  if (absl::c_any_of(numbers, [](double number) { return std::isnan(number); })) {
    classes.expected =
        "a class, a whole number or a name (use data.csv.target_column for numbers to predict)";
    for (double number : numbers) classes.of_text.push_back(std::isnan(number) ? -1 : 0);
    return classes;
  }
  const std::set<double> distinct(numbers.begin(), numbers.end());
  const std::vector<double> sorted(distinct.begin(), distinct.end());
  const bool has_gaps = sorted.front() < 0 || sorted.back() >= kMaxClasses ||
                        2 * static_cast<double>(sorted.size()) < sorted.back() + 1;
  if (!has_gaps) {
    classes.of_text.assign(numbers.begin(), numbers.end());
    return classes;
  }
  if (sorted.size() > kFewClasses && 2 * static_cast<int64_t>(sorted.size()) > rows) {
    return NoClasses(texts.size(),
                     absl::StrFormat("classes that repeat, not %d different numbers in %d rows "
                                     "(use data.csv.target_column for numbers to predict)",
                                     sorted.size(), rows));
  }
  for (double number : sorted) classes.names.push_back(GetName(number));
  classes.of_text = GetPlaces(numbers, sorted);
  return classes;
}

CsvClasses FindClasses(const std::vector<std::string>& texts, const TableSchema& schema) {
  CsvClasses classes;
  classes.names = schema.class_names;
  classes.expected =
      schema.class_names.empty()
          ? absl::StrCat("a class of the model, a whole number of 0 to ", schema.classes - 1)
          : absl::StrCat("a class of the model (", ListNames(schema.class_names, kShownNames), ")");
  absl::flat_hash_map<std::string, int32_t> class_of;
  for (const std::string& name : schema.class_names) class_of.emplace(name, class_of.size());
  const auto find = [&](const std::string& text) {
    const auto found = class_of.find(text);
    return found == class_of.end() ? -1 : found->second;
  };
  for (const std::string& text : texts) {
    const double whole = WholeNumber(text);
    int32_t found = -1;
    if (!schema.class_names.empty()) {
      found = find(text);
      if (found < 0 && !std::isnan(whole)) found = find(GetName(whole));
    } else if (whole >= 0 && whole < static_cast<double>(schema.classes)) {
      found = static_cast<int32_t>(whole);
    }
    classes.of_text.push_back(found);
  }
  return classes;
}

}  // namespace torchps
