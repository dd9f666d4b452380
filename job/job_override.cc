#include "job/job_override.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "job/file/field_text.h"

namespace torchps {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;

// Returns "; did you mean optimizer.kind=adam?" if the value names a member of a oneof in
// `message`.
std::string MeantMember(const Descriptor& message, const FieldText& assignment) {
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& oneof = *message.oneof_decl(i);
    for (int m = 0; m < oneof.field_count(); ++m) {
      const std::string& member = oneof.field(m)->name();
      if (member != absl::AsciiStrToLower(assignment.value)) continue;
      return absl::StrCat("; did you mean ", assignment.path, ".", oneof.name(), "=", member, "?");
    }
  }
  return "";
}

// Returns "; did you mean optimizer.kind=adam?" if `field` is a member of a oneof, such as
// optimizer.adam.
std::string MeantChoice(const FieldDescriptor& field, const FieldText& assignment) {
  const OneofDescriptor* const oneof = field.real_containing_oneof();
  if (oneof == nullptr) return "";
  const absl::string_view around =
      assignment.path.substr(0, assignment.path.size() - field.name().size());
  return absl::StrCat("; did you mean ", around, oneof->name(), "=", field.name(), "?");
}

absl::Status NotAMessage(const FieldDescriptor& field, const FieldText& assignment) {
  const Descriptor& type = *field.message_type();
  std::string meant = MeantMember(type, assignment);
  if (meant.empty()) meant = MeantChoice(field, assignment);
  return absl::InvalidArgumentError(
      absl::StrCat("job field ", assignment.path, " cannot be ", QuotedText(assignment.value),
                   ": it is a message, set one of its fields (", FieldNames(type), ")", meant));
}

absl::Status PutField(Message* message, const FieldDescriptor* field, const FieldText& assignment) {
  const bool clears = field->is_repeated() && assignment.value.empty();
  if (field->message_type() != nullptr && !clears) return NotAMessage(*field, assignment);
  if (!field->is_repeated()) return PutScalar(message, field, assignment);
  // A comma-separated value replaces the whole list.
  message->GetReflection()->ClearField(message, field);
  if (assignment.value.empty()) return absl::OkStatus();
  for (const absl::string_view element : absl::StrSplit(assignment.value, ',')) {
    const absl::Status added = PutScalar(message, field, {assignment.path, element});
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

// Returns the element number `index` of a repeated message. Appends a new element if `index` is the
// current size.
absl::StatusOr<Message*> Element(Message* message, const FieldDescriptor* field,
                                 absl::string_view index, const FieldText& assignment) {
  const Reflection* reflection = message->GetReflection();
  const int size = reflection->FieldSize(*message, field);
  int position;
  if (!absl::SimpleAtoi(index, &position) || position < 0 || position > size) {
    return absl::InvalidArgumentError(absl::StrCat("job field ", assignment.path, " names element ",
                                                   QuotedText(index), " of the list ",
                                                   field->name(), "; expected 0 to ", size));
  }
  return position == size ? reflection->AddMessage(message, field)
                          : reflection->MutableRepeatedMessage(message, field, position);
}

// Sets a hyperparameter. The rest of the path is its name, including dots.
absl::Status PutHyperparameter(Message* job, const FieldDescriptor* field,
                               const FieldText& assignment) {
  const std::string name(assignment.path.substr(field->name().size() + 1));
  // The cast is safe because only JobSpec contains this field.
  auto& known = *static_cast<JobSpec*>(job)->mutable_hyperparameter();
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&name](const auto& each) { return each.name() == name; });
  HyperparameterSpec& set = found == known.end() ? *known.Add() : *found;
  set.set_name(name);
  set.set_value(std::string(assignment.value));
  return absl::OkStatus();
}

absl::Status Assign(Message* message, const FieldText& assignment) {
  const std::vector<absl::string_view> names = absl::StrSplit(assignment.path, '.');
  for (size_t i = 0;; ++i) {
    const std::string name(names[i]);
    const Descriptor* type = message->GetDescriptor();
    const bool last = i + 1 == names.size();
    const FieldDescriptor* field = type->FindFieldByName(name);
    if (field == nullptr) {
      const OneofDescriptor* oneof = type->FindOneofByName(name);
      if (last && oneof != nullptr && !oneof->is_synthetic()) {
        return ChooseMember(message, *oneof, assignment);
      }
      return absl::InvalidArgumentError(
          absl::StrCat("job field ", QuotedText(assignment.path), " does not exist: ", type->name(),
                       " has no field ", QuotedText(name), "; ", DescribeFields(*type, name)));
    }
    if (last) return PutField(message, field, assignment);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::InvalidArgumentError(absl::StrCat("job field ", QuotedText(assignment.path),
                                                     " does not exist: ", field->name(),
                                                     " has no fields of its own"));
    }
    if (field->message_type() == HyperparameterSpec::descriptor())
      return PutHyperparameter(message, field, assignment);
    if (!field->is_repeated()) {
      message = message->GetReflection()->MutableMessage(message, field);
      continue;
    }
    const absl::StatusOr<Message*> element = Element(message, field, names[++i], assignment);
    if (!element.ok()) return element.status();
    if (i + 1 == names.size()) {
      return NotAMessage(*field, assignment);
    }
    message = *element;
  }
}

}  // namespace

absl::Status ApplyOverride(JobSpec* job, absl::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("override ", QuotedText(assignment),
                                                   " has no '='; expected path.to.field=value"));
  }
  return Assign(job, {absl::StripAsciiWhitespace(assignment.substr(0, equals)),
                      absl::StripAsciiWhitespace(assignment.substr(equals + 1))});
}

std::string SetFlagFor(absl::string_view typed) {
  const std::string name = absl::StrReplaceAll(typed, {{"-", "_"}});
  std::vector<std::string> places = PlacesOfField(name);
  const std::string first = name.substr(0, name.find('.'));
  if (first != name && JobSpec::descriptor()->FindFieldByName(first) != nullptr) places = {name};
  for (std::string& place : places) place = absl::StrCat("--set=", place, "=VALUE");
  return absl::StrJoin(places, " or ");
}

}  // namespace torchps
