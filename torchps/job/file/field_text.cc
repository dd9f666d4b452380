#include "torchps/job/file/field_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/common/check.h"
#include "torchps/common/text.h"
#include "torchps/proto/job.pb.h"

namespace torchps {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Maximum number of suggestions.
constexpr size_t kMaxPlaces = 3;

}  // namespace

std::vector<std::string> PlacesOfField(absl::string_view name) {
  if (name == "lr") name = "learning_rate";
  std::vector<std::string> places;
  std::vector<std::pair<std::string, const Descriptor*>> level = {{"", JobSpec::descriptor()}};
  std::vector<const Descriptor*> seen;
  while (places.empty() && !level.empty()) {
    std::vector<std::pair<std::string, const Descriptor*>> next;
    for (const auto& [prefix, message] : level) {
      seen.push_back(message);
      for (int i = 0; i < message->field_count(); ++i) {
        const FieldDescriptor& field = *message->field(i);
        const std::string path = absl::StrCat(prefix, field.name());
        if (field.name() == name) places.push_back(path);
        const bool below = !field.is_repeated() && field.message_type() != nullptr;
        if (below && std::count(seen.begin(), seen.end(), field.message_type()) == 0) {
          next.emplace_back(path + ".", field.message_type());
        }
      }
    }
    level = std::move(next);
  }
  if (places.size() > kMaxPlaces) places.resize(kMaxPlaces);
  return places;
}

std::string DescribeFields(const google::protobuf::Descriptor& message,
                           absl::string_view unknown_name) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  std::string meant = absl::StrJoin(PlacesOfField(unknown_name), " or ");
  if (meant.empty()) {
    const std::string closest = ClosestName(unknown_name, names);
    if (!closest.empty()) meant = absl::StrCat("\"", closest, "\"");
  }
  return absl::StrCat(meant.empty() ? "" : absl::StrCat("did you mean ", meant, "? "),
                      "it has: ", absl::StrJoin(names, ", "));
}

namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;

// Sets a singular field or appends to a repeated one.
template <typename Value>
absl::Status Put(Message* message, const FieldDescriptor* field, Value value,
                 void (Reflection::*set)(Message*, const FieldDescriptor*, Value) const,
                 void (Reflection::*add)(Message*, const FieldDescriptor*, Value) const) {
  (message->GetReflection()->*(field->is_repeated() ? add : set))(message, field, value);
  return absl::OkStatus();
}

template <typename Integer>
absl::Status PutInteger(Message* message, const FieldDescriptor* field, const FieldText& text,
                        void (Reflection::*set)(Message*, const FieldDescriptor*, Integer) const,
                        void (Reflection::*add)(Message*, const FieldDescriptor*, Integer) const) {
  Integer value;
  if (!absl::SimpleAtoi(text.value, &value)) {
    return text.Expected(absl::StrCat("a whole number from ", std::numeric_limits<Integer>::min(),
                                      " to ", std::numeric_limits<Integer>::max()));
  }
  return Put(message, field, value, set, add);
}

absl::Status PutEnum(Message* message, const FieldDescriptor* field, const FieldText& text) {
  const EnumDescriptor* type = field->enum_type();
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    const EnumValueDescriptor* value = type->value(i);
    if (absl::AsciiStrToLower(value->name()) == absl::AsciiStrToLower(text.value)) {
      return Put(message, field, value, &Reflection::SetEnum, &Reflection::AddEnum);
    }
    names.push_back(value->name());
  }
  return text.ExpectedOneOf(names);
}

}  // namespace

std::string QuotedText(absl::string_view text) {
  constexpr size_t kLongest = 200;
  if (text.size() <= kLongest) return absl::StrCat("\"", absl::CHexEscape(text), "\"");
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kLongest)), "...\"");
}

absl::Status FieldText::Expected(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("job field ", path, " cannot be ", QuotedText(value), "; expected ", what));
}

absl::Status FieldText::ExpectedOneOf(const std::vector<std::string>& names) const {
  const std::string closest = ClosestName(value, names);
  return Expected(
      absl::StrCat("one of ", absl::StrJoin(names, ", "),
                   closest.empty() ? "" : absl::StrCat("; did you mean ", closest, "?")));
}

std::string FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return absl::StrJoin(names, ", ");
}

absl::Status ChooseMember(Message* message, const OneofDescriptor& oneof, const FieldText& text) {
  std::vector<std::string> names;
  for (int i = 0; i < oneof.field_count(); ++i) {
    const FieldDescriptor* member = oneof.field(i);
    names.push_back(member->name());
    if (member->name() == absl::AsciiStrToLower(text.value)) {
      message->GetReflection()->MutableMessage(message, member);
      return absl::OkStatus();
    }
  }
  return text.ExpectedOneOf(names);
}

absl::Status PutScalar(Message* message, const FieldDescriptor* field, const FieldText& text) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return PutInteger(message, field, text, &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return PutInteger(message, field, text, &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return PutInteger(message, field, text, &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return PutInteger(message, field, text, &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value;
      if (!absl::SimpleAtod(text.value, &value) || !std::isfinite(value)) {
        return text.Expected("a finite number");
      }
      return Put(message, field, value, &Reflection::SetDouble, &Reflection::AddDouble);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      float value;
      if (!absl::SimpleAtof(text.value, &value) || !std::isfinite(value)) {
        return text.Expected("a finite number");
      }
      return Put(message, field, value, &Reflection::SetFloat, &Reflection::AddFloat);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool value;
      if (!absl::SimpleAtob(text.value, &value)) return text.Expected("true or false");
      return Put(message, field, value, &Reflection::SetBool, &Reflection::AddBool);
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      return PutEnum(message, field, text);
    case FieldDescriptor::CPPTYPE_STRING:
      return Put(message, field, std::string(text.value), &Reflection::SetString,
                 &Reflection::AddString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  TPS_CHECK(false, "a message is no scalar");
  return absl::OkStatus();
}

}  // namespace torchps
