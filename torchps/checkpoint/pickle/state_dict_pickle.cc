#include "torchps/checkpoint/pickle/state_dict_pickle.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "torchps/checkpoint/pickle/pickle_machine.h"

namespace torchps {
namespace {

using Kind = PickleValue::Kind;

// These limits are far above the needs of real modules. A short instruction can repeat an earlier
// value of any size, so a small file could otherwise take much time.
constexpr size_t kMaxPickleBytes = size_t{32} << 20;
constexpr size_t kMaxDimensions = 64;
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxKeyBytes = 64;  // torch's keys are small numbers
// Maximum length in bytes of a text from the file that a message shows.
constexpr size_t kMaxShownBytes = 100;
// Number of dictionary levels that LargestNested() searches for tensors.
constexpr int kDeepestPath = 3;
constexpr size_t kMaxNested = 10000;  // dictionaries that it visits
// Memory for the pickle's objects: kMemory, and kMemoryPerByte bytes for each byte of the file. A
// tensor takes 3 KB, and 350 bytes of the file or more.
constexpr uint64_t kMemory = uint64_t{32} << 20;
constexpr uint64_t kMemoryPerByte = 8;

absl::Status Refused(absl::string_view why) { return absl::DataLossError(why); }
absl::Status Damaged() { return PickleMachine::Damaged(); }

std::string ShortText(const PickleValue& value) {
  return std::string(value.text.substr(0, kMaxShownBytes));
}

Dtype DtypeOfStorage(absl::string_view name) {
  static const auto* const kDtypes = new std::map<absl::string_view, Dtype>{
      {"BoolStorage", Dtype::kBOOL},        {"ByteStorage", Dtype::kU8},
      {"CharStorage", Dtype::kI8},          {"ShortStorage", Dtype::kI16},
      {"IntStorage", Dtype::kI32},          {"LongStorage", Dtype::kI64},
      {"HalfStorage", Dtype::kF16},         {"BFloat16Storage", Dtype::kBF16},
      {"FloatStorage", Dtype::kF32},        {"DoubleStorage", Dtype::kF64},
      {"ComplexFloatStorage", Dtype::kC64}, {"ComplexDoubleStorage", Dtype::kC128}};
  const auto found = kDtypes->find(name);
  return found == kDtypes->end() ? Dtype::kOther : found->second;
}

// Returns an upper bound of the bytes that a tensor takes in a container.
uint64_t BytesOf(const PickledTensor& tensor) {
  constexpr uint64_t kStrings = 3;
  constexpr uint64_t kAllocation = 32;
  return sizeof(PickledTensor) + kStrings * kAllocation + tensor.name.size() +
         tensor.other_dtype.size() + tensor.storage.size() +
         (tensor.shape.size() + tensor.strides.size()) * sizeof(int64_t);
}

// True if each element of the view is inside the storage.
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

// Creates storages, and tensors that view them, from torch's names and ids in a pickle.
class TorchWorld final : public PickleMachine::World {
 public:
  explicit TorchWorld(PickleMemory* memory) : memory_(memory) {}

  absl::StatusOr<PickleValue> Call(const PickleMachine& machine, const PickleValue& name,
                                   absl::Span<const PickleValue> arguments) override;
  absl::StatusOr<PickleValue> Load(absl::Span<const PickleValue> id) override;

  // REQUIRES: `value` is a kCalled.
  const PickledTensor& MakeTensor(const PickleValue& value) const { return tensors_[value.number]; }

 private:
  absl::StatusOr<PickleValue> Rebuild(const PickleMachine& machine,
                                      absl::Span<const PickleValue> arguments);

  PickleMemory* const memory_;
  std::deque<PickledTensor> storages_;  // only storage fields are set
  std::deque<PickledTensor> tensors_;
};

std::optional<std::vector<int64_t>> GetNumbers(const PickleMachine& machine,
                                               const PickleValue& value) {
  if (value.kind != Kind::kTuple) return std::nullopt;
  if (machine.MakeTuple(value).size() > kMaxDimensions) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const PickleValue& item : machine.MakeTuple(value)) {
    if (item.kind != Kind::kNumber || item.number < 0) return std::nullopt;
    numbers.push_back(item.number);
  }
  return numbers;
}

absl::StatusOr<PickleValue> TorchWorld::Call(const PickleMachine& machine, const PickleValue& name,
                                             absl::Span<const PickleValue> arguments) {
  if (name.module == "torch._utils" &&
      (name.text == "_rebuild_tensor_v2" || name.text == "_rebuild_tensor_v3")) {
    return Rebuild(machine, arguments);
  }
  // A parameter is treated as the tensor that it wraps. C++'s pickle_save wraps a dictionary in a
  // type tag.
  const bool first_argument =
      (name.module == "torch._utils" && absl::StartsWith(name.text, "_rebuild_parameter")) ||
      (name.module == "torch.jit._pickle" && name.text == "restore_type_tag");
  if (first_argument && !arguments.empty()) return arguments.front();
  return PickleValue{Kind::kOther, 0, name.text, name.module};
}

// Arguments: (storage, offset, shape, strides, requires_grad, hooks, ...). Version 3 appends the
// dtype, for dtypes without a storage class.
absl::StatusOr<PickleValue> TorchWorld::Rebuild(const PickleMachine& machine,
                                                absl::Span<const PickleValue> arguments) {
  if (arguments.size() < 4 || arguments[0].kind != Kind::kLoaded ||
      arguments[1].kind != Kind::kNumber || arguments[1].number < 0) {
    return Damaged();
  }
  std::optional<std::vector<int64_t>> shape = GetNumbers(machine, arguments[2]);
  std::optional<std::vector<int64_t>> strides = GetNumbers(machine, arguments[3]);
  if (!shape.has_value() || !strides.has_value()) return Damaged();
  PickledTensor tensor = storages_[arguments[0].number];
  if (arguments.size() > 6 && arguments[6].kind == Kind::kName && tensor.dtype == Dtype::kOther) {
    tensor.other_dtype = ShortText(arguments[6]);
  }
  tensor.offset = arguments[1].number;
  tensor.shape = *std::move(shape);
  tensor.strides = *std::move(strides);
  if (tensor.dtype != Dtype::kOther && !LiesWithin(tensor)) return Damaged();
  if (absl::Status taken = memory_->Take(BytesOf(tensor)); !taken.ok()) return taken;
  tensors_.push_back(std::move(tensor));
  return PickleValue{Kind::kCalled, static_cast<int64_t>(tensors_.size() - 1), {}, {}};
}

// The id is ("storage", torch.FloatStorage, key, device, elements).
absl::StatusOr<PickleValue> TorchWorld::Load(absl::Span<const PickleValue> id) {
  if (id.size() < 5 || id[1].kind != Kind::kName || id[2].kind != Kind::kString ||
      id[2].text.size() > kMaxKeyBytes || id[4].kind != Kind::kNumber || id[4].number < 0) {
    return Damaged();
  }
  PickledTensor storage;
  storage.dtype = DtypeOfStorage(id[1].text);
  if (storage.dtype == Dtype::kOther) storage.other_dtype = ShortText(id[1]);
  if (id[4].number > std::numeric_limits<int64_t>::max() / DtypeBytes(storage.dtype)) {
    return Damaged();
  }
  storage.storage = std::string(id[2].text);
  storage.storage_elements = id[4].number;
  if (absl::Status taken = memory_->Take(BytesOf(storage)); !taken.ok()) return taken;
  storages_.push_back(std::move(storage));
  return PickleValue{Kind::kLoaded, static_cast<int64_t>(storages_.size() - 1), {}, {}};
}

// True for unsupported tensors: sparse, quantized, or a subclass.
bool IsOtherTensor(const PickleValue& value) {
  return value.kind == Kind::kOther && absl::StartsWith(value.module, "torch") &&
         absl::StartsWith(value.text, "_rebuild_");
}

size_t CountTensors(const PickleMachine::Items& items) {
  return static_cast<size_t>(std::count_if(items.begin(), items.end(), [](const auto& item) {
    return item.second.kind == Kind::kCalled;
  }));
}

struct Nested {
  std::string path;  // in Python syntax, for example ['model']['weights']
  PickleValue dict;
  size_t tensors = 0;
};

// Returns the dictionary below `top` that contains the most tensors.
Nested LargestNested(const PickleMachine& machine, const PickleValue& top) {
  Nested largest;
  std::set<int64_t> seen = {top.number};
  std::vector<Nested> level = {{"", top, 0}};
  for (int depth = 0; depth < kDeepestPath; ++depth) {
    std::vector<Nested> next;
    for (const Nested& outer : level) {
      for (const auto& [name, item] : machine.GetItems(outer.dict)) {
        // Optimizer state uses numeric keys, which are "" here.
        if (item.kind != Kind::kDict || name.empty() || name.size() > kMaxShownBytes ||
            seen.size() == kMaxNested || !seen.insert(item.number).second) {
          continue;
        }
        next.push_back({absl::StrCat(outer.path, "['", name, "']"), item,
                        CountTensors(machine.GetItems(item))});
        if (next.back().tensors > largest.tensors) largest = next.back();
      }
    }
    level = std::move(next);
  }
  return largest;
}

absl::string_view GetWords(const PickleValue& value) {
  switch (value.kind) {
    case Kind::kDict:
      return "a dictionary";
    case Kind::kString:
      return "a string";
    case Kind::kNumber:
      return "a number";
    case Kind::kOther:
      return value.text.substr(0, kMaxShownBytes);
    default:
      return "no tensor";
  }
}

// Refuses a file without tensors at the top level, or with more tensors in a nested dictionary.
absl::Status CheckTopLevel(const PickleMachine& machine, const PickleValue& top) {
  const PickleMachine::Items& items = machine.GetItems(top);
  const size_t own = CountTensors(items);
  const Nested nested = LargestNested(machine, top);
  if (nested.tensors > own) {
    return Refused(absl::StrCat(
        "its tensors are in the nested dictionary checkpoint", nested.path,
        "; save only that dictionary in Python: checkpoint = torch.load(file, map_location='cpu'); "
        "torch.save(checkpoint",
        nested.path, ", file)"));
  }
  if (own > 0 || items.empty()) return absl::OkStatus();
  const auto& [name, value] = items.front();
  return Refused(absl::StrCat("it does not contain named tensors: '",
                              name.substr(0, kMaxShownBytes), "' is ", GetWords(value)));
}

// Returns the dictionary's tensors by name.
absl::StatusOr<std::vector<PickledTensor>> GetTensors(const PickleMachine& machine,
                                                      const TorchWorld& world,
                                                      const PickleValue& value,
                                                      PickleMemory* memory) {
  if (value.kind == Kind::kOther) {
    return Refused(absl::StrCat("it contains ", value.module.substr(0, kMaxShownBytes),
                                value.module.empty() ? "" : ".", ShortText(value),
                                " instead of a dictionary"));
  }
  if (value.kind != Kind::kDict) return Refused("it does not contain a dictionary");
  if (absl::Status top = CheckTopLevel(machine, value); !top.ok()) return top;
  std::vector<PickledTensor> tensors;
  absl::flat_hash_map<absl::string_view, size_t> place;
  for (const auto& [name, item] : machine.GetItems(value)) {
    if (name.size() > kMaxNameBytes) return Damaged();
    const bool is_other = IsOtherTensor(item);
    if (item.kind != Kind::kCalled && !is_other) continue;
    // As in Python, a repeated name keeps the first position and the last value.
    PickledTensor tensor = is_other ? PickledTensor() : world.MakeTensor(item);
    tensor.name = std::string(name);
    if (is_other) {
      tensor.dtype = Dtype::kOther;
      tensor.other_dtype = ShortText(item);
    }
    // Doubled for the entry in `place` and for the growth of both containers.
    if (absl::Status taken = memory->Take(2 * BytesOf(tensor)); !taken.ok()) return taken;
    const auto [found, is_new] = place.try_emplace(name, tensors.size());
    if (is_new) tensors.emplace_back();
    tensors[found->second] = std::move(tensor);
  }
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<PickledTensor>> ParseStateDictPickle(absl::string_view pickle,
                                                                int64_t file_bytes) {
  if (pickle.size() > kMaxPickleBytes) {
    return Refused(
        absl::StrCat("its pickle has ", pickle.size(), " bytes, more than ", kMaxPickleBytes));
  }
  PickleMemory memory(kMemory + kMemoryPerByte * static_cast<uint64_t>(file_bytes));
  TorchWorld world(&memory);
  PickleMachine machine(pickle, &memory, &world);
  const absl::StatusOr<PickleValue> made = machine.Run();
  if (!made.ok()) return made.status();
  return GetTensors(machine, world, *made, &memory);
}

}  // namespace torchps
