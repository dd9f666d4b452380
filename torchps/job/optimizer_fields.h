#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/model_layout.h"
#include "torchps/job/field_checker.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Returns the hyperparameter `name` of the job, parsed as `Value`: std::string, bool, an integer or
// a finite floating-point number. Returns `otherwise` if the job does not set it. Returns
// INVALID_ARGUMENT if the text cannot be parsed as `Value`.
//
//   absl::StatusOr<int> width = torchps::Hyperparameter(job, "width", 64);
template <typename Value>
absl::StatusOr<Value> Hyperparameter(const JobSpec& job, const std::string& name, Value otherwise) {
  const auto found =
      std::find_if(job.hyperparameter().begin(), job.hyperparameter().end(),
                   [&name](const HyperparameterSpec& each) { return each.name() == name; });
  if (found == job.hyperparameter().end()) return otherwise;
  const std::string& text = found->value();
  const auto refuse = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("hyperparameter.", name, " is \"", text, "\"; expected ", expected));
  };
  Value value{};
  if constexpr (std::is_same_v<Value, std::string>) {
    value = text;
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (!absl::SimpleAtob(text, &value)) return refuse("true or false");
  } else if constexpr (std::is_integral_v<Value>) {
    if (!absl::SimpleAtoi(text, &value)) return refuse("a whole number");
  } else {
    static_assert(std::is_floating_point_v<Value>, "a hyperparameter is text, bool or a number");
    double parsed = 0;
    if (!absl::SimpleAtod(text, &parsed)) return refuse("a number");
    // The condition is written so that a NaN fails it. A non-finite number would otherwise be
    // reported only steps later, as a non-finite loss.
    if (!(std::abs(parsed) <= std::numeric_limits<Value>::max())) return refuse("a finite number");
    value = static_cast<Value>(parsed);
  }
  return value;
}

// Returns the parameter group for a trained parameter: the index of the first `spec.group` with a
// pattern that matches the full name, or -1. Patterns follow fnmatch(3): '*' also matches dots, and
// a backslash is an ordinary character. The worker stores the group in the layout's segments.
// Averaged segments always belong to group -1, because they are not optimized.
int GetGroup(const OptimizerSpec& spec, absl::string_view name);

// Returns the weight decay for group `group` of a normalised spec; -1 means the defaults.
double GetWeightDecay(const OptimizerSpec& spec, int group);

// Returns OK if the group of each trained segment equals GetGroup's result. Otherwise returns
// INVALID_ARGUMENT, naming the segment, its group and the expected group.
absl::Status CheckGroups(const OptimizerSpec& spec, const ModelLayout& layout);

// Returns OK if each group of `spec` matches at least one trained segment. Otherwise returns
// INVALID_ARGUMENT, naming the pattern and some parameter names.
absl::Status CheckGroupsAreUsed(const OptimizerSpec& spec, const ModelLayout& layout);

// Sets defaults for the fields of an optimizer and validates them. `path` is the optimizer's path
// in the job: "optimizer" or "local.inner". Does not handle sgd.momentum_at, which depends on the
// whole job (torchps/job/job_spec.cc).
void NormalizeOptimizer(OptimizerSpec* optimizer, const std::string& path, FieldChecker& check);

}  // namespace torchps
