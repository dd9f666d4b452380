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

// What stands on a pickle machine's stack. Small, and what is large lies beside it, so that neither
// copies nor nesting cost a file's reader more than the file has bytes.
struct PickleValue {
  enum class Kind {
    kNone,
    kMark,
    kNumber,
    kString,
    kName,
    kTuple,
    kDict,
    kLoaded,  // World::Load() made it
    kCalled,  // World::Call() made it
    kOther
  };

  Kind kind = Kind::kNone;
  // Or which tuple or dictionary of the machine's, or which thing of the World's.
  int64_t number = 0;
  absl::string_view text;  // or what a name names within `module`; of kOther in words
  absl::string_view module;
};
using PickleValues = std::vector<PickleValue>;

// A machine with a stack, as Python's pickletools.py describes it. It has the instructions that
// dictionaries of tensors take, of protocols 2 to 5, and calls nothing that the pickle names: what
// a call means, its World says. So bytes of any origin are safe.
//
// Thread-compatible. Borrows the pickle, of which the values' texts are parts, and the World.
// Whatever fails is DATA_LOSS, with words to go behind "... is not a state_dict: ".
class PickleMachine {
 public:
  // What the pickle's names and ids stand for. A pickle repeats a call in two bytes, so a World
  // bounds what it keeps of each and of all.
  class World {
   public:
    virtual ~World() = default;
    // What comes of calling `name`, a kName. An OrderedDict is made without asking.
    virtual absl::StatusOr<PickleValue> Call(const PickleMachine& machine, const PickleValue& name,
                                             absl::Span<const PickleValue> arguments) = 0;
    // What lies outside of the pickle under `id`.
    virtual absl::StatusOr<PickleValue> Load(absl::Span<const PickleValue> id) = 0;
  };

  // A dictionary's, in the order in which they were set; a name may come again.
  using Items = std::vector<std::pair<absl::string_view, PickleValue>>;

  PickleMachine(absl::string_view pickle, World* world) : rest_(pickle), world_(world) {}

  // To be called once. What the pickle makes, and nothing else.
  absl::StatusOr<PickleValue> Run();

  // REQUIRES: `value` is a kTuple, a kDict, of this machine.
  absl::Span<const PickleValue> MakeTuple(const PickleValue& value) const;
  const Items& GetItems(const PickleValue& value) const;

  static absl::Status Damaged();

 private:
  absl::Status Execute(uint8_t code);
  absl::Status Call();
  absl::Status Load();
  absl::Status SetItems(const absl::StatusOr<PickleValues>& items);

  absl::StatusOr<absl::string_view> Bytes(uint64_t count);
  // Of so many bytes, little-endian.
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
  // What lies above the last mark, which goes too.
  absl::StatusOr<PickleValues> PopToMark();

  absl::Status Remember(const absl::StatusOr<uint64_t>& index);
  absl::Status Recall(const absl::StatusOr<uint64_t>& index);

  absl::string_view rest_;
  World* const world_;
  PickleValues stack_;
  std::map<uint64_t, PickleValue> memo_;
  std::deque<PickleValues> tuples_;
  std::deque<Items> dicts_;
};

}  // namespace torchps
