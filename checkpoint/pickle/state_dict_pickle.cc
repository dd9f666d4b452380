#include "checkpoint/pickle/state_dict_pickle.h"

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

// What stands on the stack. Small, and what is large lies beside it, so that neither copies nor
// nesting cost a file's reader more than the file has bytes.
struct Value {
  enum class Kind {
    kNone,
    kMark,
    kNumber,
    kString,
    kName,
    kStorage,
    kTensor,
    kTuple,
    kDict,
    kOther
  };

  Kind kind = Kind::kNone;
  int64_t number = 0;      // or which storage, tensor, tuple or dictionary
  absl::string_view text;  // or what a name names within `module`; of kOther in words
  absl::string_view module;
};
using Kind = Value::Kind;
using Values = std::vector<Value>;
using Items = std::vector<std::pair<absl::string_view, Value>>;

// Far above what any module has. An instruction of a byte or two can repeat what came before,
// however large that was, so without limits a small file would fill the memory.
constexpr size_t kMostPickleBytes = size_t{32} << 20;
constexpr size_t kMostTensors = size_t{1} << 20;
constexpr size_t kMostDimensions = 64;
constexpr size_t kMostNameBytes = 4096;
constexpr size_t kMostKeyBytes = 64;  // torch's are numbers

absl::Status Refused(absl::string_view why) { return absl::DataLossError(why); }
absl::Status Damaged() { return Refused("its pickle is damaged"); }

std::optional<Dtype> DtypeOfStorage(absl::string_view name) {
  static const auto* const kDtypes = new std::map<absl::string_view, Dtype>{
      {"BoolStorage", Dtype::kBOOL}, {"ByteStorage", Dtype::kU8},
      {"CharStorage", Dtype::kI8},   {"ShortStorage", Dtype::kI16},
      {"IntStorage", Dtype::kI32},   {"LongStorage", Dtype::kI64},
      {"HalfStorage", Dtype::kF16},  {"BFloat16Storage", Dtype::kBF16},
      {"FloatStorage", Dtype::kF32}, {"DoubleStorage", Dtype::kF64}};
  const auto found = kDtypes->find(name);
  if (found == kDtypes->end()) return std::nullopt;
  return found->second;
}

// Whether each element of the view lies in the storage.
bool LiesWithin(const PickledTensor& tensor) {
  if (tensor.shape.size() != tensor.strides.size()) return false;
  int64_t elements = 1;
  int64_t last = tensor.offset;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t span = 0;
    if (tensor.shape[i] == 0) return tensor.offset <= tensor.storage_elements;
    if (__builtin_mul_overflow(elements, tensor.shape[i], &elements) ||
        __builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return false;
    }
  }
  return last < tensor.storage_elements;
}

// A machine with a stack, as Python's pickletools.py describes it. It has the instructions that
// dictionaries of tensors take, of protocols 2 to 5, and knows a handful of names.
class Machine {
 public:
  explicit Machine(absl::string_view pickle) : rest_(pickle) {}

  absl::StatusOr<std::vector<PickledTensor>> Run() {
    while (true) {
      const absl::StatusOr<uint64_t> code = Unsigned(1);
      if (!code.ok()) return code.status();
      if (*code == '.') break;
      if (absl::Status status = Execute(static_cast<uint8_t>(*code)); !status.ok()) return status;
    }
    if (stack_.size() != 1) return Damaged();
    return Tensors(stack_.back());
  }

 private:
  absl::Status Execute(uint8_t code);
  absl::Status Call();
  absl::Status Rebuild(const Values& arguments);
  absl::Status LoadStorage();
  absl::Status SetItems(const absl::StatusOr<Values>& items);
  absl::StatusOr<std::vector<PickledTensor>> Tensors(const Value& value) const;

  absl::StatusOr<absl::string_view> Bytes(uint64_t count) {
    if (count > rest_.size()) return Damaged();
    const absl::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  // Of so many bytes, little-endian.
  absl::StatusOr<uint64_t> Unsigned(uint64_t count) {
    const absl::StatusOr<absl::string_view> bytes = Bytes(count);
    if (!bytes.ok()) return bytes.status();
    uint64_t number = 0;
    for (size_t i = count; i-- > 0;) number = number << 8 | static_cast<uint8_t>((*bytes)[i]);
    return number;
  }
  absl::StatusOr<absl::string_view> Line() {
    const size_t end = rest_.find('\n');
    if (end == absl::string_view::npos) return Damaged();
    const absl::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  absl::Status Push(Value value) {
    stack_.push_back(value);
    return absl::OkStatus();
  }
  absl::Status PushSigned(uint64_t bytes);
  absl::Status PushUnsigned(uint64_t bytes);
  absl::Status PushString(uint64_t bytes_of_length);
  absl::Status PushTuple(absl::StatusOr<Values> values);
  absl::Status PushDict() {
    dicts_.emplace_back();
    return Push({Kind::kDict, static_cast<int64_t>(dicts_.size() - 1), {}, {}});
  }

  absl::StatusOr<Values> Pop(size_t count);
  // What lies above the last mark, which goes too.
  absl::StatusOr<Values> PopToMark();

  absl::Status Remember(const absl::StatusOr<uint64_t>& index);
  absl::Status Recall(const absl::StatusOr<uint64_t>& index);

  // REQUIRES: `value` is of that kind.
  const Values& TupleOf(const Value& value) const { return tuples_[value.number]; }
  std::optional<std::vector<int64_t>> NumbersOf(const Value& value) const;

  absl::string_view rest_;
  Values stack_;
  std::map<uint64_t, Value> memo_;
  std::deque<PickledTensor> storages_;  // of a storage's own
  std::deque<PickledTensor> tensors_;
  std::deque<Values> tuples_;
  std::deque<Items> dicts_;
};

absl::Status Machine::PushUnsigned(uint64_t bytes) {
  const absl::StatusOr<uint64_t> number = Unsigned(bytes);
  if (!number.ok()) return number.status();
  return Push({Kind::kNumber, static_cast<int64_t>(*number), {}, {}});
}

absl::Status Machine::PushSigned(uint64_t bytes) {
  if (bytes > 8) return Damaged();
  const absl::StatusOr<uint64_t> number = Unsigned(bytes);
  if (!number.ok()) return number.status();
  uint64_t value = *number;
  if (bytes > 0 && bytes < 8 && value >> (8 * bytes - 1) != 0) value |= ~uint64_t{0} << (8 * bytes);
  return Push({Kind::kNumber, static_cast<int64_t>(value), {}, {}});
}

absl::Status Machine::PushString(uint64_t bytes_of_length) {
  const absl::StatusOr<uint64_t> length = Unsigned(bytes_of_length);
  if (!length.ok()) return length.status();
  const absl::StatusOr<absl::string_view> text = Bytes(*length);
  if (!text.ok()) return text.status();
  return Push({Kind::kString, 0, *text, {}});
}

absl::Status Machine::PushTuple(absl::StatusOr<Values> values) {
  if (!values.ok()) return values.status();
  tuples_.push_back(*std::move(values));
  return Push({Kind::kTuple, static_cast<int64_t>(tuples_.size() - 1), {}, {}});
}

absl::StatusOr<Values> Machine::Pop(size_t count) {
  if (stack_.size() < count) return Damaged();
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
  Values values(first, stack_.end());
  for (const Value& value : values) {
    if (value.kind == Kind::kMark) return Damaged();
  }
  stack_.erase(first, stack_.end());
  return values;
}

absl::StatusOr<Values> Machine::PopToMark() {
  size_t first = stack_.size();
  while (first > 0 && stack_[first - 1].kind != Kind::kMark) --first;
  if (first == 0) return Damaged();
  Values values(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
  stack_.resize(first - 1);
  return values;
}

absl::Status Machine::Remember(const absl::StatusOr<uint64_t>& index) {
  if (!index.ok()) return index.status();
  if (stack_.empty()) return Damaged();
  memo_[*index] = stack_.back();
  return absl::OkStatus();
}

absl::Status Machine::Recall(const absl::StatusOr<uint64_t>& index) {
  if (!index.ok()) return index.status();
  const auto found = memo_.find(*index);
  return found != memo_.end() ? Push(found->second) : Damaged();
}

std::optional<std::vector<int64_t>> Machine::NumbersOf(const Value& value) const {
  if (value.kind != Kind::kTuple || TupleOf(value).size() > kMostDimensions) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Value& item : TupleOf(value)) {
    if (item.kind != Kind::kNumber || item.number < 0) return std::nullopt;
    numbers.push_back(item.number);
  }
  return numbers;
}

absl::Status Machine::Execute(uint8_t code) {
  switch (code) {
    case 0x80:  // PROTO
      return Unsigned(1).status();
    case 0x95:  // FRAME
      return Unsigned(8).status();
    case '(':
      return Push({Kind::kMark, 0, {}, {}});
    case 'N':
      return Push({});
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return Push({Kind::kOther, 0, "a truth value", {}});
    case 'K':
      return PushUnsigned(1);
    case 'M':
      return PushUnsigned(2);
    case 'J':
      return PushSigned(4);
    case 0x8a: {  // LONG1
      const absl::StatusOr<uint64_t> bytes = Unsigned(1);
      return bytes.ok() ? PushSigned(*bytes) : bytes.status();
    }
    case 'G': {  // BINFLOAT
      const absl::StatusOr<uint64_t> number = Unsigned(8);
      return number.ok() ? Push({Kind::kOther, 0, "a number", {}}) : number.status();
    }
    case 'X':
      return PushString(4);
    case 0x8c:  // SHORT_BINUNICODE
      return PushString(1);
    case ')':
      return PushTuple(Values());
    case 't':
      return PushTuple(PopToMark());
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
      return PushTuple(Pop(code - 0x84));
    case '}':
      return PushDict();
    case ']':
      return Push({Kind::kOther, 0, "a list", {}});
    case 'a':  // APPEND, to a list that nobody looks at
      return Pop(1).status();
    case 'e':  // APPENDS
      return PopToMark().status();
    case 's':
      return SetItems(Pop(2));
    case 'u':
      return SetItems(PopToMark());
    case 'q':
      return Remember(Unsigned(1));
    case 'r':
      return Remember(Unsigned(4));
    case 0x94:  // MEMOIZE
      return Remember(memo_.size());
    case 'h':
      return Recall(Unsigned(1));
    case 'j':
      return Recall(Unsigned(4));
    case 'c': {
      const absl::StatusOr<absl::string_view> module = Line();
      if (!module.ok()) return module.status();
      const absl::StatusOr<absl::string_view> name = Line();
      if (!name.ok()) return name.status();
      return Push({Kind::kName, 0, *name, *module});
    }
    case 0x93: {  // STACK_GLOBAL
      const absl::StatusOr<Values> names = Pop(2);
      if (!names.ok()) return names.status();
      return Push({Kind::kName, 0, (*names)[1].text, (*names)[0].text});
    }
    case 0x81:  // NEWOBJ: makes an object of a class, as a call does
    case 'R':
      return Call();
    case 'Q':
      return LoadStorage();
    case 'b':  // BUILD: attributes, as the versions in a state_dict's _metadata
      return Pop(1).status();
    default:
      return Refused("it holds more than tensors by name");
  }
}

absl::Status Machine::Call() {
  const absl::StatusOr<Values> call = Pop(2);
  if (!call.ok()) return call.status();
  const Value& name = (*call)[0];
  if (name.kind != Kind::kName || (*call)[1].kind != Kind::kTuple) return Damaged();
  const Values& arguments = TupleOf((*call)[1]);
  if (name.module == "collections" && name.text == "OrderedDict") return PushDict();
  if (name.module == "torch._utils" && name.text == "_rebuild_tensor_v2") {
    return Rebuild(arguments);
  }
  // A parameter is its tensor. The other is what C++'s pickle_save puts around a dictionary.
  const bool first_argument =
      (name.module == "torch._utils" && name.text == "_rebuild_parameter") ||
      (name.module == "torch.jit._pickle" && name.text == "restore_type_tag");
  if (first_argument && !arguments.empty()) return Push(arguments.front());
  return Push({Kind::kOther, 0, name.text, name.module});
}

// (storage, offset, shape, strides, requires_grad, hooks, ...)
absl::Status Machine::Rebuild(const Values& arguments) {
  if (arguments.size() < 4 || tensors_.size() == kMostTensors ||
      arguments[0].kind != Kind::kStorage || arguments[1].kind != Kind::kNumber ||
      arguments[1].number < 0) {
    return Damaged();
  }
  std::optional<std::vector<int64_t>> shape = NumbersOf(arguments[2]);
  std::optional<std::vector<int64_t>> strides = NumbersOf(arguments[3]);
  if (!shape.has_value() || !strides.has_value()) return Damaged();
  PickledTensor tensor = storages_[arguments[0].number];
  tensor.offset = arguments[1].number;
  tensor.shape = *std::move(shape);
  tensor.strides = *std::move(strides);
  if (!LiesWithin(tensor)) return Damaged();
  tensors_.push_back(std::move(tensor));
  return Push({Kind::kTensor, static_cast<int64_t>(tensors_.size() - 1), {}, {}});
}

// ("storage", torch.FloatStorage, key, device, elements)
absl::Status Machine::LoadStorage() {
  const absl::StatusOr<Values> popped = Pop(1);
  if (!popped.ok()) return popped.status();
  if (popped->front().kind != Kind::kTuple) return Damaged();
  const Values& id = TupleOf(popped->front());
  if (id.size() < 5 || id[1].kind != Kind::kName || id[2].kind != Kind::kString ||
      id[2].text.size() > kMostKeyBytes || id[4].kind != Kind::kNumber || id[4].number < 0 ||
      storages_.size() == kMostTensors) {
    return Damaged();
  }
  const std::optional<Dtype> dtype = DtypeOfStorage(id[1].text);
  if (!dtype.has_value()) {
    return Refused(absl::StrCat("it has a tensor of ", id[1].module, ".", id[1].text,
                                ", which cannot be read here"));
  }
  if (id[4].number > std::numeric_limits<int64_t>::max() / DtypeBytes(*dtype)) return Damaged();
  PickledTensor storage;
  storage.dtype = *dtype;
  storage.storage = std::string(id[2].text);
  storage.storage_elements = id[4].number;
  storages_.push_back(std::move(storage));
  return Push({Kind::kStorage, static_cast<int64_t>(storages_.size() - 1), {}, {}});
}

// Of the dictionary that lies below them.
absl::Status Machine::SetItems(const absl::StatusOr<Values>& items) {
  if (!items.ok()) return items.status();
  if (stack_.empty() || items->size() % 2 != 0) return Damaged();
  if (stack_.back().kind == Kind::kOther) return absl::OkStatus();
  if (stack_.back().kind != Kind::kDict) return Damaged();
  Items& dict = dicts_[stack_.back().number];
  for (size_t i = 0; i < items->size(); i += 2) {
    // An optimizer's keys are numbers; its dictionary is inside one that is refused.
    dict.emplace_back((*items)[i].text, (*items)[i + 1]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PickledTensor>> Machine::Tensors(const Value& value) const {
  if (value.kind == Kind::kOther) {
    return Refused(absl::StrCat("it holds ", value.module, value.module.empty() ? "" : ".",
                                value.text, " and no dictionary"));
  }
  if (value.kind != Kind::kDict) return Refused("it holds no dictionary");
  std::vector<PickledTensor> tensors;
  absl::flat_hash_map<absl::string_view, size_t> place;
  for (const auto& [name, item] : dicts_[value.number]) {
    if (name.size() > kMostNameBytes) return Damaged();
    if (item.kind != Kind::kTensor) {
      return Refused(absl::StrCat("it holds more than tensors by name: '", name, "' is ",
                                  item.kind == Kind::kDict ? "a dictionary" : "no tensor"));
    }
    // As in Python: a name that comes again keeps its place and has the last value.
    const auto [found, is_new] = place.try_emplace(name, tensors.size());
    if (is_new) {
      if (tensors.size() == kMostTensors) return Damaged();
      tensors.emplace_back();
    }
    PickledTensor& tensor = tensors[found->second];
    tensor = tensors_[item.number];
    tensor.name = std::string(name);
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<PickledTensor>> ParseStateDictPickle(absl::string_view pickle) {
  if (pickle.size() > kMostPickleBytes) {
    return Refused(
        absl::StrCat("its pickle has ", pickle.size(), " bytes, more than ", kMostPickleBytes));
  }
  return Machine(pickle).Run();
}

}  // namespace torchps
