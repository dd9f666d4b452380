#include "torchps/job/job_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "torchps/common/text.h"
#include "torchps/job/file/field_text.h"
#include "torchps/job/file/yaml_job.h"

namespace torchps {

namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::DescriptorPool;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::FileDescriptor;

// Larger files are data files passed by mistake; a job file is about a page long.
constexpr size_t kMaxJobFileBytes = size_t{1} << 20;

// Returns the innermost message on a path from `outer` to `inner` that contains a field `name`, or
// null if there is none.
const Descriptor* AroundWith(const Descriptor& outer, const Descriptor& inner,
                             const std::string& name) {
  for (int i = 0; i < outer.field_count(); ++i) {
    const Descriptor* const type = outer.field(i)->message_type();
    if (type == nullptr) continue;
    const Descriptor* const around = type == &inner ? nullptr : AroundWith(*type, inner, name);
    if (around != nullptr) return around;
    if (type == &inner && outer.FindFieldByName(name) != nullptr) return &outer;
  }
  return nullptr;
}

std::string NoSuchField(const std::string& type_name, const std::string& field) {
  const DescriptorPool* const pool = JobSpec::descriptor()->file()->pool();
  const Descriptor* const type = pool->FindMessageTypeByName(type_name);
  if (type == nullptr) return "";
  std::string text = absl::StrCat(type->name(), " has no field \"", field, "\"");
  const Descriptor* around = AroundWith(*JobSpec::descriptor(), *type, field);
  if (around == nullptr && JobSpec::descriptor()->FindFieldByName(field) != nullptr) {
    around = JobSpec::descriptor();
  }
  return around == nullptr
             ? absl::StrCat(text, "; ", DescribeFields(*type, field))
             : absl::StrCat(text, ", but ", around->name(), " does; is a } missing before it?");
}

// Returns the values of all enums that are the type of a field called `field` in a job.
std::vector<std::string> EnumValues(const std::string& field) {
  std::vector<std::string> names;
  const FileDescriptor& file = *JobSpec::descriptor()->file();
  for (int i = 0; i < file.message_type_count(); ++i) {
    const FieldDescriptor* const found = file.message_type(i)->FindFieldByName(field);
    if (found == nullptr || found->enum_type() == nullptr) continue;
    for (int j = 0; j < found->enum_type()->value_count(); ++j) {
      names.push_back(found->enum_type()->value(j)->name());
    }
  }
  return names;
}

// Rewords a parser error and suggests known names. The parser reports errors only as text, so this
// matches the text; unknown texts are returned unchanged.
std::string Reworded(const std::string& message) {
  if (message == "Expected identifier, got: ") {
    return "the file ends inside a message; is a } missing?";
  }
  if (message == "Expected identifier, got: }") return "unmatched }";
  if (message == "Expected identifier, got: {") {
    return "expected a field name, not a {; write fields without outer braces and names without "
           "quotes, as in training { epochs: 3 }; the name of a JSON job file must end in .json";
  }
  absl::string_view rest = message;
  if (absl::ConsumePrefix(&rest, "Expected \"{\", found ") && absl::ConsumeSuffix(&rest, ".")) {
    // The parser adds quotes to a text that may already be in quotes.
    if (absl::StartsWith(rest, "\"\"")) rest = rest.substr(1, rest.size() - 2);
    return absl::StrCat("expected a {, not ", rest,
                        "; write the fields of a message in { }, as in model { name: \"mlp\" }");
  }
  for (const absl::string_view what : {"integer", "double", "string"}) {
    rest = message;
    if (!absl::ConsumePrefix(&rest, absl::StrCat("Expected ", what, ", got: "))) continue;
    const absl::string_view name = what == "integer"  ? "a whole number"
                                   : what == "double" ? "a number"
                                                      : "a quoted string";
    return rest.empty() ? absl::StrCat("the file ends where ", name, " is expected")
                        : absl::StrCat("expected ", name, ", not ", rest);
  }
  const std::vector<std::string> parts = absl::StrSplit(message, '"');
  if (parts.size() != 5) return message;
  if (parts[0] == "Message type " && parts[2] == " has no field named ") {
    const std::string reworded = NoSuchField(parts[1], parts[3]);
    return reworded.empty() ? message : reworded;
  }
  if (parts[0] == "Unknown enumeration value of " && parts[2] == " for field ") {
    const std::vector<std::string> values = EnumValues(parts[3]);
    const std::string closest = ClosestName(parts[1], values);
    return absl::StrCat(parts[3], " cannot be \"", parts[1], "\"; expected one of ",
                        absl::StrJoin(values, ", "),
                        closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?"));
  }
  return message;
}

// Keeps the first error, because later errors usually follow from it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(absl::string_view source_name) : source_name_(source_name) {}

  // `line` counts from 0; -1 means that the line is unknown.
  void AddError(int line, int /*column*/, const std::string& message) override {
    if (!status_.ok()) return;
    const std::string place =
        line >= 0 ? absl::StrCat(source_name_, ":", line + 1) : std::string(source_name_);
    status_ = absl::InvalidArgumentError(absl::StrCat(place, ": ", Reworded(message)));
  }

  const absl::Status& status() const { return status_; }

 private:
  const absl::string_view source_name_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<JobSpec> ParseJobFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxJobFileBytes + 1, '\0');
  if (file) file.read(&text[0], static_cast<std::streamsize>(text.size()));
  // Opening a directory succeeds, but reading it fails.
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("job file ", path, " cannot be read: ",
                                            errno != 0 ? std::strerror(errno) : "unknown reason"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxJobFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("job file ", path, " is larger than 1 MiB, too large for a job file"));
  }
  const bool is_yaml = absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml") ||
                       absl::EndsWith(path, ".json");
  return is_yaml ? ParseYamlJob(text, path) : ParseJobText(text, path);
}

absl::StatusOr<JobSpec> ParseJobText(absl::string_view text, absl::string_view source_name) {
  FirstError error(source_name);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  JobSpec job;
  if (!parser.ParseFromString(std::string(text), &job)) {
    if (!error.status().ok()) return error.status();
    return absl::InvalidArgumentError(absl::StrCat(source_name, ": not a job in text format"));
  }
  return job;
}

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
  // Comma-separated values replace the whole list.
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
