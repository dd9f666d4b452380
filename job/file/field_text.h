#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

// Puts values that a user wrote as text into the fields of a job. Errors are INVALID_ARGUMENT and
// name the field, the value and what was expected. Thread-compatible.

namespace torchps {

// A value as text and the path of its field, as training.epochs. Views into the caller's strings.
struct FieldText {
  absl::string_view path;
  absl::string_view value;

  // "job field training.epochs cannot be "x"; expected a whole number".
  absl::Status Expected(absl::string_view what) const;
  // The same with a list of names and the closest of them.
  absl::Status ExpectedOneOf(const std::vector<std::string>& names) const;
};

// Text in quotes, escaped for a terminal and cut after 200 bytes.
std::string QuotedText(absl::string_view text);

// The names of the message's fields, with commas between.
std::string FieldNames(const google::protobuf::Descriptor& message);

// Sets a singular field, or adds to a repeated one. An enum is given by name in any case, a bool as
// true/false, yes/no or 1/0. REQUIRES: the field is no message.
absl::Status PutScalar(google::protobuf::Message* message,
                       const google::protobuf::FieldDescriptor* field, const FieldText& text);

// Chooses the member of `oneof` that the text names, with its defaults. A member that is already
// chosen keeps its fields. REQUIRES: the members are messages.
absl::Status ChooseMember(google::protobuf::Message* message,
                          const google::protobuf::OneofDescriptor& oneof, const FieldText& text);

}  // namespace torchps
