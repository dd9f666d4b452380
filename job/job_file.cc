#include "job/job_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "job/unknown_field.h"

namespace torchps {
namespace {

// A job file is a page; this is a data file, passed by mistake.
constexpr size_t kMaxJobFileBytes = size_t{1} << 20;

// "Message type "torchps.X" has no field named "y"." becomes a sentence that offers the fields
// there are. The parser tells us in no other way than by this text; other texts stay as they are.
std::string Reworded(const std::string& message) {
  const std::vector<std::string> parts = absl::StrSplit(message, '"');
  if (parts.size() != 5 || parts[0] != "Message type " || parts[2] != " has no field named ") {
    return message;
  }
  const google::protobuf::Descriptor* type =
      JobSpec::descriptor()->file()->pool()->FindMessageTypeByName(parts[1]);
  if (type == nullptr) return message;
  return absl::StrCat(type->name(), " has no field \"", parts[3], "\"; ",
                      DescribeFields(*type, parts[3]));
}

// Keeps the first error: the others mostly follow from it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(absl::string_view source_name) : source_name_(source_name) {}

  // `line` counts from 0; -1 is none in particular.
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
  // A directory opens, and fails when it is read.
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("job file ", path, " cannot be read: ",
                                            errno != 0 ? std::strerror(errno) : "unknown reason"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxJobFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("job file ", path, " is larger than 1 MiB and so no job file"));
  }
  return ParseJobText(text, path);
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
