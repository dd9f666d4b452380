#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace torchps {

// Checks the fields of a job and keeps the first failure: "job field training.batch_size is 0;
// expected 1 to 1048576". Fields are named by their paths. Not thread-safe.
class FieldChecker {
 public:
  template <typename Value>
  void Range(absl::string_view field, Value value, Value low, Value high) {
    // The condition is written so that a NaN fails it.
    if (!(value >= low && value <= high)) Fail(field, value, absl::StrCat(low, " to ", high));
  }

  // Checks a rate or factor, which must be representable as float32 without overflow or underflow.
  void NotNegative(absl::string_view field, double value);
  void Positive(absl::string_view field, double value);

  // Checks the decay rate of a moving average, in [0, 1).
  void Decay(absl::string_view field, double value);

  // Checks all strings and enums of `job`. Strings are sent and printed, so they must be valid
  // UTF-8 of bounded length without control characters. Enum values must be known to this program,
  // because the text and wire formats also accept plain numbers.
  void StringsAndEnums(const google::protobuf::Message& job) { CheckMessage("", job); }

  template <typename Value>
  void Fail(absl::string_view field, const Value& value, absl::string_view expected) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("job field ", field, " is ", value, "; expected ", expected));
  }

  // Returns OK, or INVALID_ARGUMENT with the first failure.
  const absl::Status& status() const { return status_; }

 private:
  void CheckMessage(const std::string& path, const google::protobuf::Message& message);
  void CheckString(const std::string& path, const std::string& value);

  absl::Status status_;
};

}  // namespace torchps
