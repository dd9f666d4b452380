#include "checkpoint/pickle/state_dict_pickle.h"

#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/pickle/pickle_machine.h"

namespace torchps {
namespace {

using Kind = PickleValue::Kind;

// Far above what any module has. An instruction of a byte or two can repeat what came before,
// however large that was, so without limits a small file would fill the memory.
constexpr size_t kMostPickleBytes = size_t{32} << 20;
constexpr size_t kMostTensors = size_t{1} << 20;
constexpr size_t kMostDimensions = 64;
constexpr size_t kMostNameBytes = 4096;
constexpr size_t kMostKeyBytes = 64;  // torch's are numbers

absl::Status Refused(absl::string_view why) { return absl::DataLossError(why); }
absl::Status Damaged() { return PickleMachine::Damaged(); }

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

// What torch's names and ids in a pickle stand for: storages, and tensors over them.
class TorchWorld final : public PickleMachine::World {
 public:
  absl::StatusOr<PickleValue> Call(const PickleMachine& machine, const PickleValue& name,
                                   absl::Span<const PickleValue> arguments) override;
  absl::StatusOr<PickleValue> Load(absl::Span<const PickleValue> id) override;

  // REQUIRES: `value` is a kCalled.
  const PickledTensor& TensorOf(const PickleValue& value) const { return tensors_[value.number]; }

 private:
  absl::StatusOr<PickleValue> Rebuild(const PickleMachine& machine,
                                      absl::Span<const PickleValue> arguments);

  std::deque<PickledTensor> storages_;  // of a storage's own
  std::deque<PickledTensor> tensors_;
};

std::optional<std::vector<int64_t>> NumbersOf(const PickleMachine& machine,
                                              const PickleValue& value) {
  if (value.kind != Kind::kTuple) return std::nullopt;
  if (machine.TupleOf(value).size() > kMostDimensions) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const PickleValue& item : machine.TupleOf(value)) {
    if (item.kind != Kind::kNumber || item.number < 0) return std::nullopt;
    numbers.push_back(item.number);
  }
  return numbers;
}

absl::StatusOr<PickleValue> TorchWorld::Call(const PickleMachine& machine, const PickleValue& name,
                                             absl::Span<const PickleValue> arguments) {
  if (name.module == "torch._utils" && name.text == "_rebuild_tensor_v2") {
    return Rebuild(machine, arguments);
  }
  // A parameter is its tensor. The other is what C++'s pickle_save puts around a dictionary.
  const bool first_argument =
      (name.module == "torch._utils" && name.text == "_rebuild_parameter") ||
      (name.module == "torch.jit._pickle" && name.text == "restore_type_tag");
  if (first_argument && !arguments.empty()) return arguments.front();
  return PickleValue{Kind::kOther, 0, name.text, name.module};
}

// (storage, offset, shape, strides, requires_grad, hooks, ...)
absl::StatusOr<PickleValue> TorchWorld::Rebuild(const PickleMachine& machine,
                                                absl::Span<const PickleValue> arguments) {
  if (arguments.size() < 4 || tensors_.size() == kMostTensors ||
      arguments[0].kind != Kind::kLoaded || arguments[1].kind != Kind::kNumber ||
      arguments[1].number < 0) {
    return Damaged();
  }
  std::optional<std::vector<int64_t>> shape = NumbersOf(machine, arguments[2]);
  std::optional<std::vector<int64_t>> strides = NumbersOf(machine, arguments[3]);
  if (!shape.has_value() || !strides.has_value()) return Damaged();
  PickledTensor tensor = storages_[arguments[0].number];
  tensor.offset = arguments[1].number;
  tensor.shape = *std::move(shape);
  tensor.strides = *std::move(strides);
  if (!LiesWithin(tensor)) return Damaged();
  tensors_.push_back(std::move(tensor));
  return PickleValue{Kind::kCalled, static_cast<int64_t>(tensors_.size() - 1), {}, {}};
}

// ("storage", torch.FloatStorage, key, device, elements)
absl::StatusOr<PickleValue> TorchWorld::Load(absl::Span<const PickleValue> id) {
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
  return PickleValue{Kind::kLoaded, static_cast<int64_t>(storages_.size() - 1), {}, {}};
}

// The dictionary's tensors by name.
absl::StatusOr<std::vector<PickledTensor>> TensorsOf(const PickleMachine& machine,
                                                     const TorchWorld& world,
                                                     const PickleValue& value) {
  if (value.kind == Kind::kOther) {
    return Refused(absl::StrCat("it holds ", value.module, value.module.empty() ? "" : ".",
                                value.text, " and no dictionary"));
  }
  if (value.kind != Kind::kDict) return Refused("it holds no dictionary");
  std::vector<PickledTensor> tensors;
  absl::flat_hash_map<absl::string_view, size_t> place;
  for (const auto& [name, item] : machine.ItemsOf(value)) {
    if (name.size() > kMostNameBytes) return Damaged();
    if (item.kind != Kind::kCalled) {
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
    tensor = world.TensorOf(item);
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
  TorchWorld world;
  PickleMachine machine(pickle, &world);
  const absl::StatusOr<PickleValue> made = machine.Run();
  if (!made.ok()) return made.status();
  return TensorsOf(machine, world, *made);
}

}  // namespace torchps
