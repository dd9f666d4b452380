#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace torchps {

// Many checks of one job's fields, of which the first that fails is told:
// "job field training.batch_size is 0; expected 1 to 1048576". Fields are named by their paths. Not
// thread-safe.
class FieldChecker {
 public:
  template <typename Value>
  void Range(absl::string_view field, Value value, Value low, Value high) {
    // Written so that NaN is outside.
    if (!(value >= low && value <= high)) Fail(field, value, absl::StrCat(low, " to ", high));
  }

  // A real number that float32 can hold, where rates and factors end up: neither lost to 0 nor to
  // infinity.
  void NotNegative(absl::string_view field, double value);
  void Positive(absl::string_view field, double value);

  // [0, 1): the decay rate of a moving average.
  void Decay(absl::string_view field, double value);

  // Every string of `job` travels and is printed, whatever else it is for: UTF-8 without control
  // characters, of bounded length. Every enum has a value that this program knows, although text
  // and wire format also take bare numbers.
  void StringsAndEnums(const google::protobuf::Message& job) { CheckMessage("", job); }

  template <typename Value>
  void Fail(absl::string_view field, const Value& value, absl::string_view expected) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("job field ", field, " is ", value, "; expected ", expected));
  }

  // OK, or INVALID_ARGUMENT with the first failure.
  const absl::Status& status() const { return status_; }

 private:
  void CheckMessage(const std::string& path, const google::protobuf::Message& message);
  void CheckString(const std::string& path, const std::string& value);

  absl::Status status_;
};

}  // namespace torchps
