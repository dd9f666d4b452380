#include "torchps/tools/run_plan/fault_plan.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace torchps {

absl::StatusOr<std::map<int, std::string>> ParseSlowWorkers(const FlagValues& flags, int workers) {
  std::map<int, std::string> factors;
  for (const std::string& value : flags.All("slow")) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(value, absl::MaxSplits(':', 1));
    const auto expected = [&](const std::string& what) {
      return absl::InvalidArgumentError(
          absl::StrCat("--slow=", value, ": expected SLOT:FACTOR with ", what));
    };
    int slot = 0;
    if (!absl::SimpleAtoi(parts.first, &slot) || slot < 0 || slot >= workers) {
      return expected(absl::StrCat("a slot from 0 to ", workers - 1));
    }
    double factor = 0;
    if (!absl::SimpleAtod(parts.second, &factor) || !std::isfinite(factor) || factor < 1) {
      return expected("a factor of at least 1");
    }
    if (!factors.emplace(slot, parts.second).second) {
      return absl::InvalidArgumentError(absl::StrCat("--slow names slot ", slot, " twice"));
    }
  }
  return factors;
}

}  // namespace torchps
