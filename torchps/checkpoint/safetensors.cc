#include "torchps/checkpoint/safetensors.h"

#include <algorithm>
#include <iterator>
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
// The metadata entry that lists the complex tensors stored as pairs of real numbers.
constexpr char kComplex[] = "complex";

struct DtypeEntry {
  Dtype dtype;
  absl::string_view name;
  int64_t bytes;
};

// In enum order.
constexpr DtypeEntry kDtypes[] = {
    {Dtype::kBOOL, "BOOL", 1}, {Dtype::kU8, "U8", 1},     {Dtype::kI8, "I8", 1},
    {Dtype::kI16, "I16", 2},   {Dtype::kI32, "I32", 4},   {Dtype::kI64, "I64", 8},
    {Dtype::kF16, "F16", 2},   {Dtype::kBF16, "BF16", 2}, {Dtype::kF32, "F32", 4},
    {Dtype::kF64, "F64", 8},   {Dtype::kC64, "C64", 8},   {Dtype::kC128, "C128", 16},
    {Dtype::kOther, "", 1},
};

const DtypeEntry& MakeEntry(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Builds the header from the parser's events. A parsed JSON object would hide duplicate names, and
// a small file could cause large allocations. Unknown fields are skipped; other unexpected values
// are refused.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(SafetensorsHeader* header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) return MoveTo(State::kNames);
    if (state_ != State::kEntry) return Open("an object");
    seen_.clear();
    if (name_ == kMetadata) return MoveTo(State::kMetadata);
    header_->tensors.emplace_back();
    header_->tensors.back().name = name_;
    return MoveTo(State::kFields);
  }

  bool key(string_t& text) override {
    if (state_ == State::kSkipped) return true;
    if (state_ == State::kNames) {
      name_ = text;
      return names_.insert(text).second ? MoveTo(State::kEntry)
                                        : Refuse(absl::StrCat("has '", text, "' twice"));
    }
    if (!seen_.insert(text).second) {
      return Refuse(absl::StrCat("has '", text, "' of '", name_, "' twice"));
    }
    key_ = text;
    if (state_ == State::kMetadata) return true;
    if (text == "dtype") return MoveTo(State::kDtype);
    if (text == "shape") return MoveTo(State::kShape);
    if (text == "data_offsets") return MoveTo(State::kOffsets);
    return Skip(State::kFields);
  }

  bool end_object() override {
    if (state_ == State::kSkipped) return Close();
    if (state_ == State::kNames) return MoveTo(State::kEnd);
    if (state_ == State::kFields &&
        seen_.count("dtype") + seen_.count("shape") + seen_.count("data_offsets") != 3) {
      return Refuse(absl::StrCat("lacks dtype, shape or data_offsets of '", name_, "'"));
    }
    return MoveTo(State::kNames);
  }

  bool string(string_t& text) override {
    if (state_ == State::kMetadata) {
      header_->metadata[key_] = text;
      return true;
    }
    if (state_ != State::kDtype) return Scalar("a string");
    TensorInfo& tensor = header_->tensors.back();
    const auto known =
        std::find_if(std::begin(kDtypes), std::end(kDtypes),
                     [&text](const DtypeEntry& entry) { return entry.name == text; });
    tensor.dtype = known == std::end(kDtypes) ? Dtype::kOther : known->dtype;
    if (tensor.dtype == Dtype::kOther) tensor.other_dtype = text;
    return MoveTo(State::kFields);
  }

  bool start_array(std::size_t) override {
    if (state_ == State::kShape) return MoveTo(State::kShapeNumbers);
    if (state_ == State::kOffsets) return MoveTo(State::kOffsetNumbers);
    return Open("an array");
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (state_ != State::kShapeNumbers && state_ != State::kOffsetNumbers) {
      return Scalar("a number");
    }
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Refuse(
          absl::StrCat("has the number ", number, " of '", name_, "', which is too large"));
    }
    numbers_.push_back(static_cast<int64_t>(number));
    return true;
  }

  bool end_array() override {
    if (state_ == State::kSkipped) return Close();
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
    return MoveTo(State::kFields);
  }

  bool null() override { return Scalar("a null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return Scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Scalar("a number with a fraction");
  }
  bool binary(binary_t&) override { return Scalar("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return Refuse(absl::StrCat("is not JSON from byte ", position, " on"));
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
    kSkipped,  // in an ignored value, `depth_` objects and arrays deep
    kEnd,
  };

  bool MoveTo(State state) {
    state_ = state;
    return true;
  }
  bool Refuse(std::string error) {
    error_ = std::move(error);
    return false;
  }
  bool RefusePosition(absl::string_view what) {
    return Refuse(absl::StrCat("has ", what, " in an unexpected place"));
  }

  // Ignores the next value, then continues in state `after`.
  bool Skip(State after) {
    after_ = after;
    depth_ = 0;
    return MoveTo(State::kSkipped);
  }
  // Ignores a value that is neither a tensor nor metadata, if allowed in this state.
  bool SkipHere() {
    if (state_ == State::kEntry) return Skip(State::kNames);
    return state_ == State::kMetadata && Skip(State::kMetadata);
  }
  bool Scalar(absl::string_view what) {
    if (state_ != State::kSkipped && !SkipHere()) return RefusePosition(what);
    return depth_ > 0 || MoveTo(after_);
  }
  bool Open(absl::string_view what) {
    if (state_ != State::kSkipped && !SkipHere()) return RefusePosition(what);
    ++depth_;
    return true;
  }
  bool Close() { return --depth_ > 0 || MoveTo(after_); }

  SafetensorsHeader* const header_;
  State state_ = State::kStart;
  State after_ = State::kStart;
  int64_t depth_ = 0;
  std::string name_;  // the current tensor
  std::string key_;   // the tensor's current field
  std::set<std::string> names_;
  std::set<std::string> seen_;  // fields of the current object
  std::vector<int64_t> numbers_;
  std::string error_ = "is empty";
};

// Returns the error in the tensor's size, or "".
std::string SizeFault(const TensorInfo& tensor) {
  int64_t bytes = DtypeBytes(tensor.dtype);
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return "has too many elements";
  }
  // The element size of kOther is unknown, and may be less than a byte.
  if (tensor.dtype == Dtype::kOther) bytes = tensor.end - tensor.begin;
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
    return absl::StrCat("is at [", tensor.begin, ", ", tensor.end, "), but its shape needs ", bytes,
                        " bytes");
  }
  return "";
}

// Converts pairs of real numbers to complex tensors, as listed in the metadata.
void RestoreComplex(SafetensorsHeader* header) {
  const auto entry = header->metadata.find(kComplex);
  if (entry == header->metadata.end()) return;
  const Json names = Json::parse(entry->second, nullptr, false);
  if (!names.is_array()) return;
  std::set<std::string> complex;
  for (const Json& name : names) {
    if (name.is_string()) complex.insert(name.get<std::string>());
  }
  for (TensorInfo& tensor : header->tensors) {
    const bool is_pairs = !tensor.shape.empty() && tensor.shape.back() == 2 &&
                          (tensor.dtype == Dtype::kF32 || tensor.dtype == Dtype::kF64);
    if (!is_pairs || complex.count(tensor.name) == 0) continue;
    tensor.dtype = tensor.dtype == Dtype::kF32 ? Dtype::kC64 : Dtype::kC128;
    tensor.shape.pop_back();
  }
  header->metadata.erase(entry);
}

// Reverses RestoreComplex, for complex dtypes that the format does not support.
SafetensorsHeader WithoutComplex(SafetensorsHeader header) {
  Json names = Json::array();
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.dtype != Dtype::kC128) continue;
    tensor.dtype = Dtype::kF64;
    tensor.shape.push_back(2);
    names.push_back(tensor.name);
  }
  if (!names.empty()) {
    header.metadata[kComplex] = names.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return header;
}

}  // namespace

int64_t DtypeBytes(Dtype dtype) { return MakeEntry(dtype).bytes; }

absl::Status CheckElements(Dtype dtype, absl::string_view bytes) {
  if (dtype != Dtype::kBOOL) return absl::OkStatus();
  const auto wrong = std::find_if(bytes.begin(), bytes.end(),
                                  [](char byte) { return static_cast<unsigned char>(byte) > 1; });
  if (wrong == bytes.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("has a boolean that is ",
                                          static_cast<unsigned char>(*wrong), "; expected 0 or 1"));
}

std::string FormatSafetensorsHeader(const SafetensorsHeader& given) {
  const SafetensorsHeader header = WithoutComplex(given);
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
                    MakeEntry(tensor.dtype).name, "\",\"shape\":[",
                    absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", tensor.begin, ",",
                    tensor.end, "]}");
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
        absl::StrCat("the file has ", data_bytes, " bytes of data; its header lists ", end));
  }
  RestoreComplex(&header);
  return header;
}

}  // namespace torchps
