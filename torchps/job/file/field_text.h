#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

// Sets job fields from text written by a user. Errors are INVALID_ARGUMENT and name the field, the
// value and the expected form. Thread-compatible.

namespace torchps {

// Two functions that suggest names to a user who named an unknown field. Thread-safe.

// Returns the paths of the job fields with exactly this name: "optimizer.learning_rate" for
// "learning_rate", and for the abbreviation "lr". Returns only the matches on the highest level, at
// most three.
std::vector<std::string> PlacesOfField(absl::string_view name);

// Describes the fields of `message` after the user named an unknown one. If the job contains the
// field elsewhere, returns "did you mean optimizer.learning_rate? it has: epochs, batch_size, ...".
// Otherwise suggests the most similar field of `message`.
std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name);

// A value as text, and the path of its field, such as training.epochs. Both are views of the
// caller's strings.
struct FieldText {
  absl::string_view path;
  absl::string_view value;

  // Returns the error "job field training.epochs cannot be "x"; expected a whole number".
  absl::Status Expected(absl::string_view what) const;
  // Returns an error that lists the allowed names and suggests the closest one.
  absl::Status ExpectedOneOf(const std::vector<std::string>& names) const;
};

// Returns `text` in quotes, escaped for a terminal and truncated to 200 bytes.
std::string QuotedText(absl::string_view text);

// Returns the names of the message's fields, separated by commas.
std::string FieldNames(const google::protobuf::Descriptor& message);

// Sets a singular field or appends to a repeated one. Enums are given by name, in upper or lower
// case, bools as true/false, yes/no or 1/0. REQUIRES: `field` is not a message field.
absl::Status PutScalar(google::protobuf::Message* message,
                       const google::protobuf::FieldDescriptor* field, const FieldText& text);

// Sets the member of `oneof` that `text` names to its defaults. A member that is already set keeps
// its fields. REQUIRES: all members are messages.
absl::Status ChooseMember(google::protobuf::Message* message,
                          const google::protobuf::OneofDescriptor& oneof, const FieldText& text);

}  // namespace torchps
