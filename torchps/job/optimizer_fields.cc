#include "torchps/job/optimizer_fields.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {

int GetGroup(const OptimizerSpec& spec, absl::string_view name) {
  const std::string whole(name);
  for (int i = 0; i < spec.group_size(); ++i) {
    if (fnmatch(spec.group(i).pattern().c_str(), whole.c_str(), FNM_NOESCAPE) == 0) return i;
  }
  return -1;
}

double GetWeightDecay(const OptimizerSpec& spec, int group) {
  if (group < 0 || !spec.group(group).has_weight_decay()) return spec.weight_decay();
  return spec.group(group).weight_decay();
}

absl::Status CheckGroups(const OptimizerSpec& spec, const ModelLayout& layout) {
  for (const Segment& segment : layout.segments()) {
    if (segment.averaged) continue;
    const int expected = GetGroup(spec, segment.name);
    if (segment.group != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment '", segment.name, "' is in parameter group ", segment.group,
                       "; by the patterns of optimizer.group it belongs to ", expected));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroupsAreUsed(const OptimizerSpec& spec, const ModelLayout& layout) {
  std::set<int> used;
  std::vector<std::string> names;
  for (const Segment& segment : layout.segments()) {
    if (segment.averaged) continue;
    used.insert(GetGroup(spec, segment.name));
    names.push_back(segment.name);
  }
  for (int i = 0; i < spec.group_size(); ++i) {
    if (used.count(i) > 0) continue;
    constexpr size_t kShown = 8;
    const std::string more = names.size() > kShown ? ", ..." : "";
    names.resize(std::min(names.size(), kShown));
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer.group.", i, ".pattern '", spec.group(i).pattern(),
        "' matches no trained parameter outside the earlier groups; trained parameters: ",
        absl::StrJoin(names, ", "), more));
  }
  return absl::OkStatus();
}

namespace {

constexpr int64_t kMaxSteps = int64_t{1} << 40;  // keeps all products below 2^63
constexpr int kMaxGroups = 1000;

// This is a template, because AdamSpec and AdamWSpec are different types with the same fields.
template <typename Spec>
void NormalizeAdam(Spec* spec, const std::string& path, FieldChecker& check) {
  if (!spec->has_beta1()) spec->set_beta1(0.9);
  if (!spec->has_beta2()) spec->set_beta2(0.999);
  if (!spec->has_epsilon()) spec->set_epsilon(1e-8);
  check.Decay(path + ".beta1", spec->beta1());
  check.Decay(path + ".beta2", spec->beta2());
  check.Positive(path + ".epsilon", spec->epsilon());
}

void NormalizeKind(OptimizerSpec* optimizer, const std::string& path, FieldChecker& check) {
  switch (optimizer->kind_case()) {
    case OptimizerSpec::KIND_NOT_SET:
      optimizer->mutable_sgd();
      break;
    case OptimizerSpec::kSgd: {
      const SgdSpec& sgd = optimizer->sgd();
      check.Range(path + ".sgd.momentum", sgd.momentum(), 0.0, 1.0);
      check.Range(path + ".sgd.dampening", sgd.dampening(), 0.0, 1.0);
      if (sgd.nesterov() && !(sgd.momentum() > 0 && sgd.dampening() == 0)) {
        check.Fail(path + ".sgd.nesterov", "true",
                   "false, or a momentum above 0 and a dampening of 0");
      }
      break;
    }
    case OptimizerSpec::kAdam:
      NormalizeAdam(optimizer->mutable_adam(), path + ".adam", check);
      break;
    case OptimizerSpec::kAdamw:
      NormalizeAdam(optimizer->mutable_adamw(), path + ".adamw", check);
      break;
    case OptimizerSpec::kAdagrad: {
      AdagradSpec* adagrad = optimizer->mutable_adagrad();
      if (!adagrad->has_epsilon()) adagrad->set_epsilon(1e-10);
      check.Positive(path + ".adagrad.epsilon", adagrad->epsilon());
      check.NotNegative(path + ".adagrad.lr_decay", adagrad->lr_decay());
      check.NotNegative(path + ".adagrad.initial_accumulator", adagrad->initial_accumulator());
      break;
    }
    case OptimizerSpec::kRmsprop: {
      RmsPropSpec* rmsprop = optimizer->mutable_rmsprop();
      if (!rmsprop->has_alpha()) rmsprop->set_alpha(0.99);
      if (!rmsprop->has_epsilon()) rmsprop->set_epsilon(1e-8);
      check.Range(path + ".rmsprop.alpha", rmsprop->alpha(), 0.0, 1.0);
      check.Positive(path + ".rmsprop.epsilon", rmsprop->epsilon());
      check.Range(path + ".rmsprop.momentum", rmsprop->momentum(), 0.0, 1.0);
      break;
    }
  }
}

void NormalizeSchedule(ScheduleSpec* schedule, const std::string& path, FieldChecker& check) {
  if (!schedule->has_gamma()) schedule->set_gamma(0.1);
  check.Range<int64_t>(path + ".warmup_steps", schedule->warmup_steps(), 0, kMaxSteps);
  // Only STEP needs a step size.
  const int64_t smallest_step = schedule->shape() == ScheduleSpec::STEP ? 1 : 0;
  check.Range<int64_t>(path + ".step_size", schedule->step_size(), smallest_step, kMaxSteps);
  check.Positive(path + ".gamma", schedule->gamma());
  check.Range<int64_t>(path + ".total_steps", schedule->total_steps(), 0,
                       std::numeric_limits<int64_t>::max());
  check.Range(path + ".final_fraction", schedule->final_fraction(), 0.0, 1.0);
  // By default, a COSINE schedule without total_steps follows the job's progress in samples. All
  // other schedules follow the number of applied gradients.
  const bool is_whole_job =
      schedule->shape() == ScheduleSpec::COSINE && schedule->total_steps() == 0;
  if (!schedule->has_by()) {
    schedule->set_by(is_whole_job ? ScheduleSpec::SAMPLES : ScheduleSpec::APPLIED);
  }
}

}  // namespace

void NormalizeOptimizer(OptimizerSpec* optimizer, const std::string& path, FieldChecker& check) {
  NormalizeKind(optimizer, path, check);
  if (optimizer->learning_rate() == 0) {
    check.Fail(path + ".learning_rate", "missing or 0", "a number above 0 that float32 can hold");
  }
  check.Positive(path + ".learning_rate", optimizer->learning_rate());
  check.NotNegative(path + ".weight_decay", optimizer->weight_decay());
  NormalizeSchedule(optimizer->mutable_schedule(), path + ".schedule", check);
  if (optimizer->group_size() > kMaxGroups) {
    check.Fail(path + ".group", absl::StrCat("a list of ", optimizer->group_size()),
               absl::StrCat("at most ", kMaxGroups));
  }
  for (int i = 0; i < optimizer->group_size(); ++i) {
    ParameterGroupSpec* group = optimizer->mutable_group(i);
    const std::string field = absl::StrCat(path, ".group.", i);
    if (group->pattern().empty())
      check.Fail(field + ".pattern", "\"\"", "a pattern such as *.bias");
    if (!group->has_learning_rate_factor()) group->set_learning_rate_factor(1);
    check.NotNegative(field + ".learning_rate_factor", group->learning_rate_factor());
    if (group->has_weight_decay()) {
      check.NotNegative(field + ".weight_decay", group->weight_decay());
    }
  }
}

}  // namespace torchps
