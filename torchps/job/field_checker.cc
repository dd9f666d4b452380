#include "torchps/job/field_checker.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "google/protobuf/descriptor.h"

namespace torchps {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Reflection;

constexpr size_t kMaxStringBytes = 4096;
constexpr double kSmallestReal = 1e-30;
constexpr double kLargestReal = 1e30;

bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const int length = first < 0x80   ? 1
                       : first < 0xc2 ? 0
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                       : first < 0xf5 ? 4
                                      : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (int j = 1; j < length; ++j) {
      if ((static_cast<uint8_t>(text[i + j]) & 0xc0) != 0x80) return false;
    }
    // Refuses overlong three- and four-byte forms, surrogates, and code points above U+10FFFF.
    const auto second = length > 2 ? static_cast<uint8_t>(text[i + 1]) : uint8_t{0x80};
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace

void FieldChecker::NotNegative(absl::string_view field, double value) {
  Range(field, value, 0.0, kLargestReal);
}

void FieldChecker::Positive(absl::string_view field, double value) {
  if (!(value >= kSmallestReal && value <= kLargestReal)) {
    Fail(field, value, "a number above 0 that float32 can hold");
  }
}

void FieldChecker::Decay(absl::string_view field, double value) {
  if (!(value >= 0 && value < 1)) Fail(field, value, "0 to below 1");
}

void FieldChecker::CheckString(const std::string& path, const std::string& value) {
  if (value.size() > kMaxStringBytes) {
    Fail(path, absl::StrCat(value.size(), " bytes long"),
         absl::StrCat("at most ", kMaxStringBytes));
  }
  const bool has_control = std::any_of(
      value.begin(), value.end(), [](char character) { return absl::ascii_iscntrl(character); });
  if (has_control || !IsUtf8(value)) {
    Fail(path, absl::StrCat("\"", absl::CHexEscape(value), "\""),
         "UTF-8 text without control characters");
  }
}

void FieldChecker::CheckMessage(const std::string& path, const google::protobuf::Message& message) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string here = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (!field->is_repeated()) CheckString(here, reflection->GetString(message, field));
      const int elements = field->is_repeated() ? reflection->FieldSize(message, field) : 0;
      for (int i = 0; i < elements; ++i) {
        CheckString(absl::StrCat(here, ".", i), reflection->GetRepeatedString(message, field, i));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM && !field->is_repeated()) {
      const int value = reflection->GetEnumValue(message, field);
      if (field->enum_type()->FindValueByNumber(value) == nullptr) {
        Fail(here, value, absl::StrCat("a value of ", field->enum_type()->name()));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) {
        CheckMessage(here, reflection->GetMessage(message, field));
        continue;
      }
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        CheckMessage(absl::StrCat(here, ".", i), reflection->GetRepeatedMessage(message, field, i));
      }
    }
  }
}

}  // namespace torchps
