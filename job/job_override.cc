#include "job/job_override.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/closest_name.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "job/unknown_field.h"

namespace torchps {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;

// What a user typed, so that it can be printed anywhere.
std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 200;
  if (text.size() <= kLongest) return absl::StrCat("\"", absl::CHexEscape(text), "\"");
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kLongest)), "...\"");
}

// The value and the place it is meant for: all that an error needs.
struct Assignment {
  absl::string_view path;
  absl::string_view value;

  absl::Status Expected(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("job field ", path, " cannot be ", Quoted(value), "; expected ", what));
  }

  absl::Status ExpectedOneOf(const std::vector<std::string>& names) const {
    const std::string closest = ClosestName(value, names);
    return Expected(
        absl::StrCat("one of ", absl::StrJoin(names, ", "),
                     closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?")));
  }
};

std::string FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return absl::StrJoin(names, ", ");
}

// `oneof` set to its member named by the value; a member already chosen keeps its fields.
absl::Status ChooseMember(Message* message, const OneofDescriptor& oneof,
                          const Assignment& assignment) {
  std::vector<std::string> names;
  for (int i = 0; i < oneof.field_count(); ++i) {
    const FieldDescriptor* member = oneof.field(i);
    names.push_back(member->name());
    if (member->name() == absl::AsciiStrToLower(assignment.value)) {
      message->GetReflection()->MutableMessage(message, member);
      return absl::OkStatus();
    }
  }
  return assignment.ExpectedOneOf(names);
}

// "; did you mean optimizer.kind=adam?" where the value names a member of a oneof in `message`.
std::string MeantMember(const Descriptor& message, const Assignment& assignment) {
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

// Sets a singular field, or adds to a repeated one.
template <typename Value>
absl::Status Put(Message* message, const FieldDescriptor* field, Value value,
                 void (Reflection::*set)(Message*, const FieldDescriptor*, Value) const,
                 void (Reflection::*add)(Message*, const FieldDescriptor*, Value) const) {
  (message->GetReflection()->*(field->is_repeated() ? add : set))(message, field, value);
  return absl::OkStatus();
}

template <typename Integer>
absl::Status PutInteger(Message* message, const FieldDescriptor* field,
                        const Assignment& assignment,
                        void (Reflection::*set)(Message*, const FieldDescriptor*, Integer) const,
                        void (Reflection::*add)(Message*, const FieldDescriptor*, Integer) const) {
  Integer value;
  if (!absl::SimpleAtoi(assignment.value, &value)) {
    return assignment.Expected(absl::StrCat("a whole number from ",
                                            std::numeric_limits<Integer>::min(), " to ",
                                            std::numeric_limits<Integer>::max()));
  }
  return Put(message, field, value, set, add);
}

absl::Status PutEnum(Message* message, const FieldDescriptor* field, const Assignment& assignment) {
  const EnumDescriptor* type = field->enum_type();
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    const EnumValueDescriptor* value = type->value(i);
    if (absl::AsciiStrToLower(value->name()) == absl::AsciiStrToLower(assignment.value)) {
      return Put(message, field, value, &Reflection::SetEnum, &Reflection::AddEnum);
    }
    names.push_back(value->name());
  }
  return assignment.ExpectedOneOf(names);
}

absl::Status PutScalar(Message* message, const FieldDescriptor* field,
                       const Assignment& assignment) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return PutInteger(message, field, assignment, &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return PutInteger(message, field, assignment, &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return PutInteger(message, field, assignment, &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return PutInteger(message, field, assignment, &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value;
      if (!absl::SimpleAtod(assignment.value, &value) || !std::isfinite(value)) {
        return assignment.Expected("a finite number");
      }
      return Put(message, field, value, &Reflection::SetDouble, &Reflection::AddDouble);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      float value;
      if (!absl::SimpleAtof(assignment.value, &value) || !std::isfinite(value)) {
        return assignment.Expected("a finite number");
      }
      return Put(message, field, value, &Reflection::SetFloat, &Reflection::AddFloat);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool value;
      if (!absl::SimpleAtob(assignment.value, &value)) return assignment.Expected("true or false");
      return Put(message, field, value, &Reflection::SetBool, &Reflection::AddBool);
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      return PutEnum(message, field, assignment);
    case FieldDescriptor::CPPTYPE_STRING:
      return Put(message, field, std::string(assignment.value), &Reflection::SetString,
                 &Reflection::AddString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return assignment.Expected(absl::StrCat("nothing: it is a message, set one of its fields (",
                                          FieldNames(*field->message_type()), ")",
                                          MeantMember(*field->message_type(), assignment)));
}

absl::Status PutField(Message* message, const FieldDescriptor* field,
                      const Assignment& assignment) {
  if (!field->is_repeated()) return PutScalar(message, field, assignment);
  // The whole list, with commas between its elements, in place of the one that is there.
  message->GetReflection()->ClearField(message, field);
  if (assignment.value.empty()) return absl::OkStatus();
  for (const absl::string_view element : absl::StrSplit(assignment.value, ',')) {
    const absl::Status added = PutScalar(message, field, {assignment.path, element});
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

// The element of a repeated message that `index` names, made if it is the one behind the last.
absl::StatusOr<Message*> Element(Message* message, const FieldDescriptor* field,
                                 absl::string_view index, const Assignment& assignment) {
  const Reflection* reflection = message->GetReflection();
  const int size = reflection->FieldSize(*message, field);
  int position;
  if (!absl::SimpleAtoi(index, &position) || position < 0 || position > size) {
    return absl::InvalidArgumentError(absl::StrCat("job field ", assignment.path, " names element ",
                                                   Quoted(index), " of the list ", field->name(),
                                                   "; expected 0 to ", size));
  }
  return position == size ? reflection->AddMessage(message, field)
                          : reflection->MutableRepeatedMessage(message, field, position);
}

// A hyperparameter: its name is the rest of the path, dots and all.
absl::Status PutHyperparameter(Message* job, const FieldDescriptor* field,
                               const Assignment& assignment) {
  const std::string name(assignment.path.substr(field->name().size() + 1));
  // No other message has that field.
  auto& known = *static_cast<JobSpec*>(job)->mutable_hyperparameter();
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&name](const auto& each) { return each.name() == name; });
  HyperparameterSpec& set = found == known.end() ? *known.Add() : *found;
  set.set_name(name);
  set.set_value(std::string(assignment.value));
  return absl::OkStatus();
}

absl::Status Assign(Message* message, const Assignment& assignment) {
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
          absl::StrCat("job field ", Quoted(assignment.path), " does not exist: ", type->name(),
                       " has no field ", Quoted(name), "; ", DescribeFields(*type, name)));
    }
    if (last) return PutField(message, field, assignment);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return absl::InvalidArgumentError(absl::StrCat("job field ", Quoted(assignment.path),
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
      return assignment.Expected(absl::StrCat("nothing: it is a message, set one of its fields (",
                                              FieldNames(*field->message_type()), ")"));
    }
    message = *element;
  }
}

}  // namespace

absl::Status ApplyOverride(JobSpec* job, absl::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("override ", Quoted(assignment), " has no '='; expected path.to.field=value"));
  }
  return Assign(job, {absl::StripAsciiWhitespace(assignment.substr(0, equals)),
                      absl::StripAsciiWhitespace(assignment.substr(equals + 1))});
}

}  // namespace torchps
