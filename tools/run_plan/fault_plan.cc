#include "tools/run_plan/fault_plan.h"

#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace torchps {
namespace {

// The format of one of the flags: SLOT, a colon and a value.
struct Form {
  std::string name;
  std::string text;  // for messages
  std::string rule;  // describes the value
  bool (*is_good)(const std::string& value);
};

std::optional<double> Number(const std::string& text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

bool IsFactor(const std::string& value) { return Number(value).value_or(0) >= 1; }
bool IsPace(const std::string& value) { return Number(value).value_or(0) > 0; }

bool IsPause(const std::string& value) {
  const std::vector<std::string> parts = absl::StrSplit(value, ':');
  if (parts.size() != 2) return false;
  const double pause = Number(parts[0]).value_or(0);
  return pause > 0 && pause < Number(parts[1]).value_or(0);
}

const std::vector<Form>& Forms() {
  static const auto* const forms = new std::vector<Form>{
      {"slow", "SLOT:FACTOR", "a factor of at least 1", IsFactor},
      {"pace", "SLOT:MS", "milliseconds above 0", IsPace},
      {"pause", "SLOT:FOR:EVERY", "seconds, FOR above 0 and below EVERY", IsPause},
  };
  return *forms;
}

}  // namespace

std::vector<FlagSpec> HandicapFlags() {
  return {
      {"slow", "SLOT:FACTOR",
       "Makes one worker compute FACTOR times slower, like a slow machine: it sends each gradient "
       "only after the longer time, so the gradient is as stale as that machine's.",
       true},
      {"pace", "SLOT:MS",
       "Makes each step of one worker take at least MS milliseconds, for its part of "
       "training.batch_size * accumulate samples; --slow multiplies that time.",
       true},
      {"pause", "SLOT:FOR:EVERY",
       "Pauses one worker for FOR seconds once in every EVERY seconds, within a step.", true},
  };
}

absl::StatusOr<std::map<int, std::vector<std::string>>> ParseHandicaps(const FlagValues& flags,
                                                                       int workers) {
  std::map<int, std::vector<std::string>> words;
  for (const Form& flag : Forms()) {
    std::set<int> named;
    for (const std::string& value : flags.All(flag.name)) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(value, absl::MaxSplits(':', 1));
      const auto expected = [&](const std::string& what) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag.name, "=", value, ": expected ", flag.text, " with ", what));
      };
      int slot = 0;
      if (!absl::SimpleAtoi(parts.first, &slot) || slot < 0 || slot >= workers) {
        return expected(absl::StrCat("a slot from 0 to ", workers - 1));
      }
      if (!flag.is_good(parts.second)) return expected(flag.rule);
      if (!named.insert(slot).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag.name, " names slot ", slot, " twice"));
      }
      words[slot].push_back(absl::StrCat("--", flag.name, "=", parts.second));
    }
  }
  return words;
}

}  // namespace torchps
