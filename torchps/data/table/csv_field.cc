#include "torchps/data/table/csv_field.h"

#include <cmath>
#include <limits>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace torchps {
namespace {

constexpr double kMaxValue = std::numeric_limits<float>::max();

// Matches whole fields, in upper or lower case.
class Pattern {
 public:
  explicit Pattern(const std::string& pattern)
      : regex_(pattern, std::regex::ECMAScript | std::regex::icase) {}

  bool Matches(absl::string_view field) const {
    constexpr size_t kMaxSize = 60;  // limit, because std::regex recurses for each character
    return field.size() <= kMaxSize && std::regex_match(field.begin(), field.end(), regex_);
  }

 private:
  const std::regex regex_;
};

bool IsDateOrTime(absl::string_view field) {
  static const auto* const pattern = [] {
    const std::string time =
        "[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?( ?[ap]m)?( ?(z|utc|[+-][0-9]{2}:?[0-9]{2}))?";
    const std::string date =
        "([0-9]{4}[-/.][0-9]{1,2}([-/.][0-9]{1,2})?"
        "|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{2}|[0-9]{4})"
        "|[0-9]{1,2}[-/. ]+[a-z]{3,9}[-/., ]+([0-9]{2}|[0-9]{4})"
        "|[a-z]{3,9}[-/. ]+[0-9]{1,2},? +[0-9]{4})";
    return new Pattern(absl::StrCat("(", date, "([t ]+", time, ")?|", time, ")"));
  }();
  return pattern->Matches(field);
}

// Removes currency and percent signs, and converts spaces and minus signs to ASCII.
std::string WithoutSigns(absl::string_view field) {
  const std::string plain = absl::StrReplaceAll(field, {{"$", ""},
                                                        {"%", ""},
                                                        {"€", ""},
                                                        {"£", ""},
                                                        {"¥", ""},
                                                        {"\u2212", "-"},
                                                        {"\u00a0", " "},
                                                        {"\u202f", " "}});
  return std::string(absl::StripAsciiWhitespace(plain));
}

// Returns the number that was probably meant by a field with a decimal comma or thousands
// separators, or "".
std::string MeantNumber(absl::string_view plain) {
  static const auto* const unclear = new Pattern("[+-]?[1-9][0-9]{0,2},[0-9]{3}");
  static const auto* const decimal_comma = new Pattern("[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?");
  static const auto* const comma_groups = new Pattern("[+-]?[0-9]{1,3}(,[0-9]{2,3})+([.][0-9]*)?");
  static const auto* const dot_groups = new Pattern("[+-]?[0-9]{1,3}([.'_ ][0-9]{3})+(,[0-9]*)?");
  static const auto* const space_groups =
      new Pattern("[+-]?[0-9]{1,3}(['_ ][0-9]{3})+([.][0-9]*)?");

  const std::string with_point = absl::StrReplaceAll(plain, {{",", "."}});
  const std::string without_commas = absl::StrReplaceAll(plain, {{",", ""}});
  if (unclear->Matches(plain)) return absl::StrCat(with_point, " or ", without_commas);
  if (decimal_comma->Matches(plain)) return with_point;
  if (comma_groups->Matches(plain)) return without_commas;
  if (space_groups->Matches(plain)) {
    return absl::StrReplaceAll(plain, {{"'", ""}, {"_", ""}, {" ", ""}});
  }
  if (dot_groups->Matches(plain)) {
    return absl::StrReplaceAll(plain, {{".", ""}, {"'", ""}, {"_", ""}, {" ", ""}, {",", "."}});
  }
  return "";
}

}  // namespace

bool IsMissing(absl::string_view field) {
  if (field.empty()) return true;
  for (absl::string_view word : {"na", "n/a", "nan", "null", "none", "?", "-"}) {
    if (absl::EqualsIgnoreCase(field, word)) return true;
  }
  return false;
}

bool IsNumber(absl::string_view field) {
  double number;
  return absl::SimpleAtod(field, &number);
}

bool ReadNumber(absl::string_view field, double& value) {
  return absl::SimpleAtod(field, &value) && std::abs(value) <= kMaxValue;
}

std::string ExpectedNumber(absl::string_view field, bool can_leave_out) {
  if (IsNumber(field)) return "a number that float32 holds";
  if (IsDateOrTime(field)) {
    return absl::StrCat(
        "a number, not a date or time (convert it to a number, such as days since a day",
        can_leave_out ? ", or leave the column out with data.csv.ignore_column)" : ")");
  }
  const std::string plain = WithoutSigns(field);
  if (IsNumber(plain)) return absl::StrCat("a number without other signs (write ", plain, ")");
  if (const std::string meant = MeantNumber(plain); !meant.empty()) {
    return absl::StrCat(
        "a number with a decimal point, not a decimal comma or thousands separator (write ", meant,
        ")");
  }
  return absl::StrCat("a number, not text",
                      can_leave_out
                          ? " (data.csv.category_column takes a column of few different values, "
                            "data.csv.ignore_column leaves out an id or free text)"
                          : "");
}

}  // namespace torchps
