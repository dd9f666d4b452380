#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace torchps {

// Limits the memory for the objects of a pickle, because one byte of a pickle can make an object of
// many bytes. Not thread-safe.
class PickleMemory {
 public:
  explicit PickleMemory(uint64_t bytes) : bytes_(bytes), left_(bytes) {}

  // Call it before storing `bytes` more. DATA_LOSS: this exceeds the limit.
  absl::Status Take(uint64_t bytes);

 private:
  const uint64_t bytes_;
  uint64_t left_;
};

// Represents a value on a pickle machine's stack. Values are small and refer to large data outside
// the stack, so copies are cheap.
struct PickleValue {
  enum class Kind {
    kNone,
    kMark,
    kNumber,
    kString,
    kName,
    kTuple,
    kDict,
    kLoaded,  // made by World::Load()
    kCalled,  // made by World::Call()
    kOther
  };

  Kind kind = Kind::kNone;
  // The value of a kNumber. For a tuple or dictionary, the machine's index; for kLoaded and
  // kCalled, the World's index.
  int64_t number = 0;
  absl::string_view text;  // a string, a name within `module`, or the description of a kOther
  absl::string_view module;
};
using PickleValues = std::vector<PickleValue>;

// Runs a pickle on a stack machine, as described in Python's pickletools.py. Supports the
// instructions of protocols 2 to 5 that dictionaries of tensors need. Does not call any function
// that the pickle names: the World decides the result of a call. So untrusted bytes are safe.
//
// Thread-compatible. Borrows the pickle, the memory limit and the World; the values' texts are
// parts of the pickle. Errors are DATA_LOSS, with a message that completes "... is not a
// state_dict: ".
class PickleMachine {
 public:
  // Resolves the names and ids in the pickle. Two bytes of a pickle can repeat a call, so a World
  // must count the objects that it keeps in the machine's PickleMemory.
  class World {
   public:
    virtual ~World() = default;
    // Returns the result of calling `name`, a kName. The machine creates OrderedDicts without this
    // call.
    virtual absl::StatusOr<PickleValue> Call(const PickleMachine& machine, const PickleValue& name,
                                             absl::Span<const PickleValue> arguments) = 0;
    // Returns the object with `id` outside the pickle.
    virtual absl::StatusOr<PickleValue> Load(absl::Span<const PickleValue> id) = 0;
  };

  // Dictionary items in insertion order; names may repeat.
  using Items = std::vector<std::pair<absl::string_view, PickleValue>>;

  PickleMachine(absl::string_view pickle, PickleMemory* memory, World* world)
      : rest_(pickle), memory_(memory), world_(world) {}

  // Runs the pickle and returns the one object that it creates. May be called once.
  absl::StatusOr<PickleValue> Run();

  // Return the values of a tuple or the items of a dictionary. REQUIRES: `value` is a kTuple or a
  // kDict of this machine.
  absl::Span<const PickleValue> MakeTuple(const PickleValue& value) const;
  const Items& GetItems(const PickleValue& value) const;

  static absl::Status Damaged();

 private:
  absl::Status Execute(uint8_t code);
  absl::Status Call();
  absl::Status Load();
  absl::Status SetItems(const absl::StatusOr<PickleValues>& items);

  absl::StatusOr<absl::string_view> Bytes(uint64_t count);
  // Reads a little-endian number of `count` bytes.
  absl::StatusOr<uint64_t> Unsigned(uint64_t count);
  absl::StatusOr<absl::string_view> Line();

  absl::Status Push(const absl::StatusOr<PickleValue>& value);
  absl::Status PushSigned(uint64_t bytes);
  absl::Status PushUnsigned(uint64_t bytes);
  absl::Status PushString(uint64_t bytes_of_length);
  absl::Status PushTuple(absl::StatusOr<PickleValues> values);
  absl::Status PushDict();
  absl::Status PushOther(absl::string_view text);

  absl::StatusOr<PickleValues> Pop(size_t count);
  // Removes the last mark and returns the values above it.
  absl::StatusOr<PickleValues> PopToMark();

  absl::Status Remember(const absl::StatusOr<uint64_t>& index);
  absl::Status Recall(const absl::StatusOr<uint64_t>& index);

  absl::string_view rest_;
  PickleMemory* const memory_;
  World* const world_;
  std::deque<PickleValue> stack_;
  size_t deepest_ = 0;  // the largest size of `stack_`
  std::map<uint64_t, PickleValue> memo_;
  std::deque<PickleValues> tuples_;
  std::deque<Items> dicts_;
};

}  // namespace torchps
