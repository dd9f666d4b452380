#include "job/job_difference.h"

#include <map>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
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

// One value as the text format writes it, which is the same for equal values only. `index` is -1
// for a field that is no list.
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

// Where a file is, and what a job that knows its data has filled in.
bool MayDiffer(const Difference& difference) {
  const std::string& path = difference.path;
  if (path == "data.path" || path == "model.init_from") return true;
  return difference.theirs == "0" &&
         (path == "optimizer.schedule.total_steps" || path == "local.inner.schedule.total_steps" ||
          path == "local.steps");
}

absl::optional<Difference> FirstDifference(const Message& mine, const Message& theirs,
                                           const std::string& prefix);

// Hyperparameters by name. Their order says nothing.
std::map<std::string, std::string> Entries(const Message& job) {
  std::map<std::string, std::string> entries;
  // No other message has that field.
  for (const HyperparameterSpec& each : static_cast<const JobSpec&>(job).hyperparameter()) {
    entries[each.name()] = absl::StrCat("\"", absl::CHexEscape(each.value()), "\"");
  }
  return entries;
}

absl::optional<Difference> HyperparameterDifference(const Message& mine, const Message& theirs,
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
    const Difference difference{absl::StrCat(path, ".", key), find(my_entries, key),
                                find(their_entries, key)};
    if (difference.mine != difference.theirs) return difference;
  }
  return absl::nullopt;
}

// A message that is absent equals one that holds only defaults: what counts is what it holds.
absl::optional<Difference> FieldDifference(const Message& mine, const Message& theirs,
                                           const FieldDescriptor* field, const std::string& path) {
  // The first worker to join fills it in.
  if (path == "data.preprocessing" || path == "data.use") return absl::nullopt;
  const Reflection* reflection = mine.GetReflection();
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (is_message && !field->is_repeated()) {
    return FirstDifference(reflection->GetMessage(mine, field),
                           reflection->GetMessage(theirs, field), absl::StrCat(path, "."));
  }
  if (is_message && field->message_type() == HyperparameterSpec::descriptor()) {
    return HyperparameterDifference(mine, theirs, path);
  }
  const auto compare = [&](int index, const std::string& here) -> absl::optional<Difference> {
    Difference difference{here, Printed(mine, field, index), Printed(theirs, field, index)};
    if (difference.mine == difference.theirs || MayDiffer(difference)) return absl::nullopt;
    return difference;
  };
  if (!field->is_repeated()) return compare(-1, path);

  const int size = reflection->FieldSize(mine, field);
  const int their_size = reflection->FieldSize(theirs, field);
  if (size != their_size) {
    return Difference{path, absl::StrCat(size, " elements"), absl::StrCat(their_size, " elements")};
  }
  for (int i = 0; i < size; ++i) {
    const std::string here = absl::StrCat(path, ".", i);
    const absl::optional<Difference> difference =
        is_message ? FirstDifference(reflection->GetRepeatedMessage(mine, field, i),
                                     reflection->GetRepeatedMessage(theirs, field, i),
                                     absl::StrCat(here, "."))
                   : compare(i, here);
    if (difference) return difference;
  }
  return absl::nullopt;
}

// In the order of job.proto. `prefix` is the path of the messages with a dot behind it.
absl::optional<Difference> FirstDifference(const Message& mine, const Message& theirs,
                                           const std::string& prefix) {
  const Descriptor* type = mine.GetDescriptor();
  for (int i = 0; i < type->real_oneof_decl_count(); ++i) {
    const OneofDescriptor* oneof = type->oneof_decl(i);
    Difference difference{absl::StrCat(prefix, oneof->name()), ChosenMember(mine, oneof),
                          ChosenMember(theirs, oneof)};
    if (difference.mine != difference.theirs) return difference;
  }
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const absl::optional<Difference> difference =
        FieldDifference(mine, theirs, field, absl::StrCat(prefix, field->name()));
    if (difference) return difference;
  }
  return absl::nullopt;
}

}  // namespace

absl::optional<JobDifference> FirstJobDifference(const JobSpec& mine, const JobSpec& theirs) {
  return FirstDifference(mine, theirs, "");
}

absl::Status CheckSameJob(const JobSpec& mine, const JobSpec& theirs, absl::string_view mine_name,
                          absl::string_view theirs_name) {
  const absl::optional<JobDifference> difference = FirstJobDifference(mine, theirs);
  if (!difference) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the jobs differ in ", difference->path, ": ",
                                                    mine_name, " has ", difference->mine, ", ",
                                                    theirs_name, " has ", difference->theirs));
}

}  // namespace torchps
