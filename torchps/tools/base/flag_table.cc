#include "torchps/tools/base/flag_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "torchps/common/text.h"

namespace torchps {
namespace {

constexpr size_t kHelpIndent = 6;
constexpr size_t kHelpWidth = 80;

std::string Wrapped(absl::string_view text) {
  const std::string indent(kHelpIndent, ' ');
  std::string wrapped = indent;
  size_t column = kHelpIndent;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > kHelpIndent && column + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(&wrapped, "\n", indent);
      column = kHelpIndent;
    } else if (column > kHelpIndent) {
      wrapped += ' ';
      ++column;
    }
    absl::StrAppend(&wrapped, word);
    column += word.size();
  }
  return wrapped + "\n";
}

}  // namespace

std::string FlagValues::Get(absl::string_view name, absl::string_view fallback) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::string(fallback) : found->second.front();
}

std::vector<std::string> FlagValues::All(absl::string_view name) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

absl::StatusOr<int64_t> FlagValues::Integer(absl::string_view name, int64_t fallback, int64_t least,
                                            int64_t most) const {
  if (!Has(name)) return fallback;
  const std::string text = Get(name);
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--", name, "=", text, ": expected a whole number from ", least, " to ", most));
  }
  return value;
}

FlagTable::FlagTable(std::string command, std::vector<FlagSpec> flags, std::string bare,
                     std::string (*suggest)(absl::string_view name))
    : command_(std::move(command)),
      flags_(std::move(flags)),
      bare_(std::move(bare)),
      suggest_(suggest) {}

absl::StatusOr<FlagValues> FlagTable::Parse(const std::vector<std::string>& arguments) const {
  FlagValues parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const absl::string_view argument = arguments[i];
    const size_t equals = argument.find('=');
    const bool attached = equals != absl::string_view::npos;
    const std::string name = NameIn(argument.substr(0, equals));
    if (name.empty() && !bare_.empty() && !absl::StartsWith(argument, "-")) {
      const FlagSpec* const bare = Find(bare_);
      if (parsed.Has(bare_) && (bare == nullptr || !bare->repeatable)) {
        return Error(absl::StrCat("takes one --", bare_, ", but got '", argument, "' and '",
                                  parsed.Get(bare_), "'"));
      }
      parsed.values_[bare_].push_back(arguments[i]);
      continue;
    }
    if (name.empty()) {
      return Error(absl::StrCat("takes ", bare_.empty() ? "flags only" : "no such flag",
                                ", but got '", argument, "'"));
    }
    const FlagSpec* const flag = Find(name);
    if (flag == nullptr) return UnknownFlag(name);
    std::string value;
    if (flag->placeholder.empty()) {
      if (attached) return Error(absl::StrCat("takes --", name, " without a value"));
    } else if (attached) {
      value = std::string(argument.substr(equals + 1));
    } else if (i + 1 < arguments.size() && !absl::StartsWith(arguments[i + 1], "--")) {
      value = arguments[++i];
    }
    if (!flag->placeholder.empty() && value.empty()) {
      return Error(
          absl::StrCat("needs a value for --", name, ", as --", name, "=", flag->placeholder));
    }
    std::vector<std::string>& values = parsed.values_[name];
    if (!flag->repeatable) values.clear();
    values.push_back(std::move(value));
  }
  for (const FlagSpec& flag : flags_) {
    if (flag.needs.empty() || !parsed.Has(flag.name) || parsed.Has(flag.needs)) continue;
    return Error(absl::StrCat("uses --", flag.name, " with --", flag.needs,
                              " only; give both, or leave it out"));
  }
  return parsed;
}

std::string FlagTable::Help() const {
  std::string text;
  for (const FlagSpec& flag : flags_) {
    const std::string letter =
        flag.letter == 0 ? "" : absl::StrCat("-", std::string(1, flag.letter), ", ");
    absl::StrAppend(&text, "  ", letter, "--", flag.name, flag.placeholder.empty() ? "" : "=",
                    flag.placeholder, flag.repeatable ? "   (may be repeated)" : "", "\n",
                    Wrapped(flag.help));
  }
  return text;
}

const FlagSpec* FlagTable::Find(absl::string_view name) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [&](const FlagSpec& flag) { return flag.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

absl::Status FlagTable::UnknownFlag(const std::string& name) const {
  std::string meant = suggest_ == nullptr ? "" : suggest_(name);
  if (meant.empty()) {
    std::vector<std::string> known;
    for (const FlagSpec& spec : flags_) known.push_back(spec.name);
    const std::string similar = ClosestName(name, known);
    if (!similar.empty()) meant = absl::StrCat("--", similar);
  }
  return Error(absl::StrCat("has no flag --", name,
                            meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
}

std::string FlagTable::NameIn(absl::string_view typed) const {
  if (absl::ConsumePrefix(&typed, "--")) return std::string(typed);
  const auto found = std::find_if(flags_.begin(), flags_.end(), [&](const FlagSpec& flag) {
    return flag.letter != 0 && typed.size() == 2 && typed[0] == '-' && typed[1] == flag.letter;
  });
  return found == flags_.end() ? "" : found->name;
}

absl::Status FlagTable::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat("'", command_, "' ", message));
}

}  // namespace torchps
