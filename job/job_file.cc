#include "job/job_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/text.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "job/file/field_text.h"
#include "job/file/yaml_job.h"

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
    // The text is quoted twice.
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
  // A directory can be opened, but reading it fails.
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

}  // namespace torchps
