#include "torchps/job/job_difference.h"

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace torchps {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;
using ::google::protobuf::TextFormat;

using Difference = JobDifference;

constexpr char kUnset[] = "no value";

// Returns a value in text format; only equal values print alike. `index` is -1 for a singular
// field.
std::string Printed(const Message& message, const FieldDescriptor* field, int index) {
  if (field->has_presence() && !message.GetReflection()->HasField(message, field)) return kUnset;
  std::string text;
  TextFormat::PrintFieldValueToString(message, field, index, &text);
  return text;
}

std::string ChosenMember(const Message& message, const OneofDescriptor* oneof) {
  const FieldDescriptor* member = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  return member == nullptr ? kUnset : member->name();
}

// Returns true for fields that hold locations, and for fields that a completed job fills in.
bool MayDiffer(const Difference& difference) {
  const std::string& path = difference.path;
  if (path == "data.path" || path == "model.init_from") return true;
  return difference.theirs == "0" &&
         (path == "optimizer.schedule.total_steps" || path == "local.inner.schedule.total_steps" ||
          path == "local.steps");
}

// Collects the fields that differ between two messages, in the order of job.proto. If different
// members of a oneof are set, reports the oneof instead of the members' fields.
class Differences {
 public:
  // If `of_learning` is true, skips fields that do not affect training.
  explicit Differences(bool of_learning) : of_learning_(of_learning) {}

  // `prefix` is empty or the path of the messages followed by a dot.
  void Compare(const Message& mine, const Message& theirs, const std::string& prefix);
  const std::vector<Difference>& found() const { return found_; }

 private:
  void CompareField(const Message& mine, const Message& theirs, const FieldDescriptor* field,
                    const std::string& path);
  void CompareList(const Message& mine, const Message& theirs, const FieldDescriptor* field,
                   const std::string& path);
  void CompareHyperparameters(const Message& mine, const Message& theirs, const std::string& path);
  void Add(const Difference& difference) {
    const bool counts = !of_learning_ || !MayDiffer(difference);
    if (difference.mine != difference.theirs && counts) found_.push_back(difference);
  }

  const bool of_learning_;
  std::vector<Difference> found_;
};

// Returns the hyperparameters by name, because their order is irrelevant.
std::map<std::string, std::string> Entries(const Message& job) {
  std::map<std::string, std::string> entries;
  // The cast is safe because only JobSpec contains this field.
  for (const HyperparameterSpec& each : static_cast<const JobSpec&>(job).hyperparameter()) {
    entries[each.name()] = absl::StrCat("\"", absl::CHexEscape(each.value()), "\"");
  }
  return entries;
}

void Differences::CompareHyperparameters(const Message& mine, const Message& theirs,
                                         const std::string& path) {
  const std::map<std::string, std::string> my_entries = Entries(mine);
  const std::map<std::string, std::string> their_entries = Entries(theirs);
  std::set<std::string> keys;
  for (const auto& [key, value] : my_entries) keys.insert(key);
  for (const auto& [key, value] : their_entries) keys.insert(key);
  const auto find = [](const std::map<std::string, std::string>& entries, const std::string& key) {
    const auto found = entries.find(key);
    return found == entries.end() ? std::string(kUnset) : found->second;
  };
  for (const std::string& key : keys) {
    Add({absl::StrCat(path, ".", key), find(my_entries, key), find(their_entries, key)});
  }
}

// Compares a missing message like a message with default values.
void Differences::CompareField(const Message& mine, const Message& theirs,
                               const FieldDescriptor* field, const std::string& path) {
  // The first worker to join fills these in.
  if (path == "data.preprocessing" || path == "data.use") return;
  const Reflection* reflection = mine.GetReflection();
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (is_message && !field->is_repeated()) {
    Compare(reflection->GetMessage(mine, field), reflection->GetMessage(theirs, field),
            absl::StrCat(path, "."));
  } else if (is_message && field->message_type() == HyperparameterSpec::descriptor()) {
    CompareHyperparameters(mine, theirs, path);
  } else if (field->is_repeated()) {
    CompareList(mine, theirs, field, path);
  } else {
    Add({path, Printed(mine, field, -1), Printed(theirs, field, -1)});
  }
}

void Differences::CompareList(const Message& mine, const Message& theirs,
                              const FieldDescriptor* field, const std::string& path) {
  const Reflection* reflection = mine.GetReflection();
  const int size = reflection->FieldSize(mine, field);
  const int their_size = reflection->FieldSize(theirs, field);
  if (size != their_size) {
    return Add({path, absl::StrCat(size, " elements"), absl::StrCat(their_size, " elements")});
  }
  for (int i = 0; i < size; ++i) {
    const std::string here = absl::StrCat(path, ".", i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Compare(reflection->GetRepeatedMessage(mine, field, i),
              reflection->GetRepeatedMessage(theirs, field, i), absl::StrCat(here, "."));
    } else {
      Add({here, Printed(mine, field, i), Printed(theirs, field, i)});
    }
  }
}

void Differences::Compare(const Message& mine, const Message& theirs, const std::string& prefix) {
  const Descriptor* type = mine.GetDescriptor();
  std::set<const OneofDescriptor*> chosen_differently;
  for (int i = 0; i < type->real_oneof_decl_count(); ++i) {
    const OneofDescriptor* oneof = type->oneof_decl(i);
    const Difference difference{absl::StrCat(prefix, oneof->name()), ChosenMember(mine, oneof),
                                ChosenMember(theirs, oneof)};
    if (difference.mine != difference.theirs) chosen_differently.insert(oneof);
    Add(difference);
  }
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (chosen_differently.count(field->real_containing_oneof()) > 0) continue;
    CompareField(mine, theirs, field, absl::StrCat(prefix, field->name()));
  }
}

}  // namespace

std::optional<JobDifference> FirstJobDifference(const JobSpec& mine, const JobSpec& theirs) {
  Differences differences(/*of_learning=*/true);
  differences.Compare(mine, theirs, "");
  if (differences.found().empty()) return std::nullopt;
  return differences.found().front();
}

std::vector<JobDifference> AllJobDifferences(const JobSpec& mine, const JobSpec& theirs) {
  Differences differences(/*of_learning=*/false);
  differences.Compare(mine, theirs, "");
  return differences.found();
}

absl::Status CheckSameJob(const JobSpec& mine, const JobSpec& theirs, absl::string_view mine_name,
                          absl::string_view theirs_name) {
  const std::optional<JobDifference> difference = FirstJobDifference(mine, theirs);
  if (!difference) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the jobs differ in ", difference->path, ": ",
                                                    mine_name, " has ", difference->mine, ", ",
                                                    theirs_name, " has ", difference->theirs));
}

namespace {

struct Reason {
  absl::string_view field;  // path of a field, or the prefix of several paths
  absl::string_view why;
};

constexpr Reason kReasons[] = {
    {"model", "the checkpoint contains the values of that model"},
    {"data", "the epoch's accounting covers the samples of this data"},
    {"seed", "it determines which samples of the epoch are already used"},
    {"training", "the remaining data leases depend on it"},
    {"optimizer", "the checkpoint contains that optimizer's state"},
    {"consistency.mode", "ASYNC counts each slot's pushes, and SYNC counts rounds"},
    {"consistency.apply", "learning rate and schedule count updates of that kind"},
    {"workers", "the schedule counts the batches and local steps of each worker"},
    {"wire.block_bytes", "the checkpoint is divided into blocks of that size"},
    {"durability.level", "the files on the disk were written for it"},
};

// Returns a copy of `before` in which the fields that a resumed job may change have the values of
// `now`.
JobSpec Changed(const JobSpec& before, const JobSpec& now) {
  JobSpec job = before;
  job.set_name(now.name());
  job.mutable_model()->set_init_from(now.model().init_from());
  job.mutable_model()->set_init_partial(now.model().init_partial());

  TrainingSpec& training = *job.mutable_training();
  training.set_epochs(now.training().epochs());
  training.set_max_pushes(now.training().max_pushes());
  training.set_clip_norm(now.training().clip_norm());
  training.set_evaluate(now.training().evaluate());
  training.set_nonfinite(now.training().nonfinite());
  // A resumed job may change the precision, because parameters, state and gradients are always
  // float32.
  training.set_precision(now.training().precision());
  training.set_quarantine_after(now.training().quarantine_after());
  // If workers share each batch, the number of updates does not depend on the number of workers.
  if (before.training().global_batch() && !before.has_local()) job.set_workers(now.workers());

  // The push log must be replayed with the optimizer that produced it.
  if (before.durability().level() != DurabilitySpec::LOG) {
    OptimizerSpec& optimizer = *job.mutable_optimizer();
    optimizer.set_learning_rate(now.optimizer().learning_rate());
    optimizer.set_weight_decay(now.optimizer().weight_decay());
    *optimizer.mutable_schedule() = now.optimizer().schedule();
    for (int i = 0; i < optimizer.group_size() && i < now.optimizer().group_size(); ++i) {
      const std::string pattern = optimizer.group(i).pattern();
      *optimizer.mutable_group(i) = now.optimizer().group(i);
      optimizer.mutable_group(i)->set_pattern(pattern);
    }
  }

  *job.mutable_consistency() = now.consistency();
  job.mutable_consistency()->set_mode(before.consistency().mode());
  if (before.consistency().has_apply()) {
    job.mutable_consistency()->set_apply(before.consistency().apply());
  }
  *job.mutable_wire() = now.wire();
  job.mutable_wire()->set_block_bytes(before.wire().block_bytes());
  *job.mutable_membership() = now.membership();
  *job.mutable_durability() = now.durability();
  job.mutable_durability()->set_level(before.durability().level());
  return job;
}

}  // namespace

absl::Status CheckMayResume(const JobSpec& before, const JobSpec& now) {
  // Compare the mode first, because the defaults of other fields depend on it.
  JobSpec mode = now;
  mode.mutable_consistency()->set_mode(before.consistency().mode());
  std::optional<JobDifference> difference = FirstJobDifference(mode, now);
  if (!difference.has_value()) difference = FirstJobDifference(Changed(before, now), now);
  if (!difference.has_value()) return absl::OkStatus();
  absl::string_view why = "the state on the disk depends on it";
  for (const Reason& reason : kReasons) {
    if (absl::StartsWith(difference->path, reason.field)) why = reason.why;
  }
  if (absl::StartsWith(difference->path, "optimizer") &&
      before.durability().level() == DurabilitySpec::LOG) {
    why = "durability.level is LOG, and the push log is replayed with that optimizer";
  }
  return absl::FailedPreconditionError(
      absl::StrCat("a resumed job cannot change ", difference->path, ", because ", why,
                   ": the job has ", difference->mine, ", this worker has ", difference->theirs));
}

}  // namespace torchps
