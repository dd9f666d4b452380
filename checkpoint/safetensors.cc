#include "checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace torchps {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";

struct DtypeEntry {
  Dtype dtype;
  absl::string_view name;
  int64_t bytes;
};

constexpr DtypeEntry kDtypes[] = {
    {Dtype::kBOOL, "BOOL", 1}, {Dtype::kU8, "U8", 1},     {Dtype::kI8, "I8", 1},
    {Dtype::kI16, "I16", 2},   {Dtype::kI32, "I32", 4},   {Dtype::kI64, "I64", 8},
    {Dtype::kF16, "F16", 2},   {Dtype::kBF16, "BF16", 2}, {Dtype::kF32, "F32", 4},
    {Dtype::kF64, "F64", 8},
};

const DtypeEntry& EntryOf(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The header as a stream of what the parser finds, so that a name that is there twice is seen and
// nothing is built that the file has not paid for in bytes.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(SafetensorsHeader* header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) return Go(State::kNames);
    if (state_ != State::kEntry) return Refuse("has an object in an unexpected place");
    seen_.clear();
    if (name_ == kMetadata) return Go(State::kMetadata);
    header_->tensors.emplace_back();
    header_->tensors.back().name = name_;
    return Go(State::kFields);
  }

  bool key(string_t& text) override {
    if (state_ == State::kNames) {
      name_ = text;
      return names_.insert(text).second ? Go(State::kEntry)
                                        : Refuse(absl::StrCat("has '", text, "' twice"));
    }
    if (!seen_.insert(text).second) {
      return Refuse(absl::StrCat("has '", text, "' of '", name_, "' twice"));
    }
    key_ = text;
    if (state_ == State::kMetadata) return true;
    if (text == "dtype") return Go(State::kDtype);
    if (text == "shape") return Go(State::kShape);
    if (text == "data_offsets") return Go(State::kOffsets);
    return Refuse(absl::StrCat("has an unknown field '", text, "' of '", name_, "'"));
  }

  bool end_object() override {
    if (state_ == State::kNames) return Go(State::kEnd);
    if (state_ == State::kFields && seen_.size() != 3) {
      return Refuse(absl::StrCat("lacks dtype, shape or data_offsets of '", name_, "'"));
    }
    return Go(State::kNames);
  }

  bool string(string_t& text) override {
    if (state_ == State::kMetadata) {
      header_->metadata[key_] = text;
      return true;
    }
    if (state_ != State::kDtype) return Refuse("has a string in an unexpected place");
    TensorInfo& tensor = header_->tensors.back();
    for (const DtypeEntry& entry : kDtypes) {
      if (entry.name != text) continue;
      tensor.dtype = entry.dtype;
      return Go(State::kFields);
    }
    return Refuse(absl::StrCat("has dtype '", text, "' of '", name_,
                               "'; expected BOOL, U8, I8 to I64, F16, BF16, F32 or F64"));
  }

  bool start_array(std::size_t) override {
    if (state_ == State::kShape) return Go(State::kShapeNumbers);
    if (state_ == State::kOffsets) return Go(State::kOffsetNumbers);
    return Refuse("has an array in an unexpected place");
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Refuse(
          absl::StrCat("has the number ", number, " of '", name_, "', which is too large"));
    }
    numbers_.push_back(static_cast<int64_t>(number));
    return state_ == State::kShapeNumbers || state_ == State::kOffsetNumbers
               ? true
               : Refuse("has a number in an unexpected place");
  }

  bool end_array() override {
    TensorInfo& tensor = header_->tensors.back();
    if (state_ == State::kShapeNumbers) {
      tensor.shape = std::move(numbers_);
    } else {
      if (numbers_.size() != 2) {
        return Refuse(
            absl::StrCat("has ", numbers_.size(), " data_offsets of '", name_, "'; expected 2"));
      }
      tensor.begin = numbers_[0];
      tensor.end = numbers_[1];
    }
    numbers_.clear();
    return Go(State::kFields);
  }

  bool null() override { return Refuse("has a null"); }
  bool boolean(bool) override { return Refuse("has a boolean"); }
  bool number_integer(number_integer_t) override { return Refuse("has a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Refuse("has a number with a fraction");
  }
  bool binary(binary_t&) override { return Refuse("has binary data"); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return Refuse(absl::StrCat("is no JSON from byte ", position, " on"));
  }

 private:
  enum class State {
    kStart,
    kNames,  // in the outermost object
    kEntry,  // after a name
    kMetadata,
    kFields,  // in a tensor's object
    kDtype,
    kShape,
    kShapeNumbers,
    kOffsets,
    kOffsetNumbers,
    kEnd,
  };

  bool Go(State state) {
    state_ = state;
    return true;
  }
  bool Refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }

  SafetensorsHeader* const header_;
  State state_ = State::kStart;
  std::string name_;  // of the tensor
  std::string key_;   // of its field
  std::set<std::string> names_;
  std::set<std::string> seen_;  // fields of the present object
  std::vector<int64_t> numbers_;
  std::string error_ = "is empty";
};

// "" or what is wrong with the tensor's size.
std::string SizeFault(const TensorInfo& tensor) {
  int64_t bytes = DtypeBytes(tensor.dtype);
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return "has too many elements";
  }
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
    return absl::StrCat("lies in [", tensor.begin, ", ", tensor.end, "), its shape takes ", bytes,
                        " bytes");
  }
  return "";
}

}  // namespace

int64_t DtypeBytes(Dtype dtype) { return EntryOf(dtype).bytes; }

absl::Status CheckElements(Dtype dtype, absl::string_view bytes) {
  if (dtype != Dtype::kBOOL) return absl::OkStatus();
  const auto wrong = std::find_if(bytes.begin(), bytes.end(),
                                  [](char byte) { return static_cast<unsigned char>(byte) > 1; });
  if (wrong == bytes.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("has a boolean that is ",
                                          static_cast<unsigned char>(*wrong), "; expected 0 or 1"));
}

std::string FormatSafetensorsHeader(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    absl::StrAppend(&json, "\"", kMetadata, "\":{");
    for (const auto& [key, value] : header.metadata) {
      absl::StrAppend(&json, json.back() == '{' ? "" : ",", Quoted(key), ":", Quoted(value));
    }
    json += "}";
  }
  for (const TensorInfo& tensor : header.tensors) {
    absl::StrAppend(&json, json.size() == 1 ? "" : ",", Quoted(tensor.name), ":{\"dtype\":\"",
                    EntryOf(tensor.dtype).name, "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}");
  }
  return json + "}";
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  SafetensorsHeader header;
  HeaderHandler handler(&header);
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) {
    return absl::DataLossError(absl::StrCat("the header ", handler.error()));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  int64_t end = 0;
  for (const TensorInfo& tensor : header.tensors) {
    std::string fault = SizeFault(tensor);
    if (fault.empty() && tensor.begin != end) {
      fault = absl::StrCat("begins at ", tensor.begin, "; expected ", end);
    }
    if (!fault.empty()) {
      return absl::DataLossError(absl::StrCat("tensor '", tensor.name, "' ", fault));
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    return absl::DataLossError(
        absl::StrCat("the file has ", data_bytes, " bytes of data; its header names ", end));
  }
  return header;
}

}  // namespace torchps
