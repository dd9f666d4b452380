#include "torchps/checkpoint/pickle/pickle_machine.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

using Kind = PickleValue::Kind;

namespace {

// Bytes per object for its entry in a container and for the allocator.
constexpr uint64_t kOverhead = 48;
// A growing vector takes three times its contents: the old array, and a new one of twice the size.
constexpr uint64_t kGrowing = 3;

}  // namespace

absl::Status PickleMemory::Take(uint64_t bytes) {
  if (bytes > left_) {
    return absl::DataLossError(
        absl::StrCat("its pickle needs more than ", bytes_ >> 20, " MiB of memory"));
  }
  left_ -= bytes;
  return absl::OkStatus();
}

absl::Status PickleMachine::Damaged() { return absl::DataLossError("its pickle is damaged"); }

absl::StatusOr<PickleValue> PickleMachine::Run() {
  while (true) {
    const absl::StatusOr<uint64_t> code = Unsigned(1);
    if (!code.ok()) return code.status();
    if (*code == '.') break;
    if (absl::Status status = Execute(static_cast<uint8_t>(*code)); !status.ok()) return status;
  }
  if (stack_.size() != 1) return Damaged();
  return stack_.back();
}

absl::Span<const PickleValue> PickleMachine::MakeTuple(const PickleValue& value) const {
  return tuples_[value.number];
}

const PickleMachine::Items& PickleMachine::GetItems(const PickleValue& value) const {
  return dicts_[value.number];
}

absl::StatusOr<absl::string_view> PickleMachine::Bytes(uint64_t count) {
  if (count > rest_.size()) return Damaged();
  const absl::string_view bytes = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return bytes;
}

absl::StatusOr<uint64_t> PickleMachine::Unsigned(uint64_t count) {
  const absl::StatusOr<absl::string_view> bytes = Bytes(count);
  if (!bytes.ok()) return bytes.status();
  uint64_t number = 0;
  for (size_t i = count; i-- > 0;) number = number << 8 | static_cast<uint8_t>((*bytes)[i]);
  return number;
}

absl::StatusOr<absl::string_view> PickleMachine::Line() {
  const size_t end = rest_.find('\n');
  if (end == absl::string_view::npos) return Damaged();
  const absl::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  return line;
}

absl::Status PickleMachine::Push(const absl::StatusOr<PickleValue>& value) {
  if (!value.ok()) return value.status();
  if (stack_.size() == deepest_) {
    // Pop() and PopToMark() copy the values.
    absl::Status taken = memory_->Take(kGrowing * sizeof(PickleValue));
    if (!taken.ok()) return taken;
    ++deepest_;
  }
  stack_.push_back(*value);
  return absl::OkStatus();
}

absl::Status PickleMachine::PushDict() {
  if (absl::Status taken = memory_->Take(kOverhead); !taken.ok()) return taken;
  dicts_.emplace_back();
  return Push(PickleValue{Kind::kDict, static_cast<int64_t>(dicts_.size() - 1), {}, {}});
}

absl::Status PickleMachine::PushOther(absl::string_view text) {
  return Push(PickleValue{Kind::kOther, 0, text, {}});
}

absl::Status PickleMachine::PushUnsigned(uint64_t bytes) {
  const absl::StatusOr<uint64_t> number = Unsigned(bytes);
  if (!number.ok()) return number.status();
  return Push(PickleValue{Kind::kNumber, static_cast<int64_t>(*number), {}, {}});
}

absl::Status PickleMachine::PushSigned(uint64_t bytes) {
  if (bytes > 8) {  // for example, a random seed
    const absl::Status skipped = Bytes(bytes).status();
    return skipped.ok() ? PushOther("a number") : skipped;
  }
  const absl::StatusOr<uint64_t> number = Unsigned(bytes);
  if (!number.ok()) return number.status();
  uint64_t value = *number;
  if (bytes > 0 && bytes < 8 && value >> (8 * bytes - 1) != 0) value |= ~uint64_t{0} << (8 * bytes);
  return Push(PickleValue{Kind::kNumber, static_cast<int64_t>(value), {}, {}});
}

absl::Status PickleMachine::PushString(uint64_t bytes_of_length) {
  const absl::StatusOr<uint64_t> length = Unsigned(bytes_of_length);
  if (!length.ok()) return length.status();
  const absl::StatusOr<absl::string_view> text = Bytes(*length);
  if (!text.ok()) return text.status();
  return Push(PickleValue{Kind::kString, 0, *text, {}});
}

absl::Status PickleMachine::PushTuple(absl::StatusOr<PickleValues> values) {
  if (!values.ok()) return values.status();
  absl::Status taken = memory_->Take(kOverhead + values->size() * sizeof(PickleValue));
  if (!taken.ok()) return taken;
  tuples_.push_back(*std::move(values));
  return Push(PickleValue{Kind::kTuple, static_cast<int64_t>(tuples_.size() - 1), {}, {}});
}

absl::StatusOr<PickleValues> PickleMachine::Pop(size_t count) {
  if (stack_.size() < count) return Damaged();
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
  PickleValues values(first, stack_.end());
  for (const PickleValue& value : values) {
    if (value.kind == Kind::kMark) return Damaged();
  }
  stack_.erase(first, stack_.end());
  return values;
}

absl::StatusOr<PickleValues> PickleMachine::PopToMark() {
  size_t first = stack_.size();
  while (first > 0 && stack_[first - 1].kind != Kind::kMark) --first;
  if (first == 0) return Damaged();
  PickleValues values(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
  stack_.resize(first - 1);
  return values;
}

absl::Status PickleMachine::Remember(const absl::StatusOr<uint64_t>& index) {
  if (!index.ok()) return index.status();
  if (stack_.empty()) return Damaged();
  absl::Status taken = memory_->Take(kOverhead + sizeof(PickleValue));
  if (taken.ok()) memo_[*index] = stack_.back();
  return taken;
}

absl::Status PickleMachine::Recall(const absl::StatusOr<uint64_t>& index) {
  if (!index.ok()) return index.status();
  const auto found = memo_.find(*index);
  return found != memo_.end() ? Push(found->second) : Damaged();
}

absl::Status PickleMachine::Execute(uint8_t code) {
  switch (code) {
    case 0x80:  // PROTO
      return Unsigned(1).status();
    case 0x95:  // FRAME
      return Unsigned(8).status();
    case '(':
      return Push(PickleValue{Kind::kMark, 0, {}, {}});
    case 'N':
      return Push(PickleValue());
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return PushOther("a truth value");
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
      return number.ok() ? PushOther("a number") : number.status();
    }
    case 'B':    // BINBYTES
    case 'C': {  // SHORT_BINBYTES
      const absl::StatusOr<uint64_t> bytes = Unsigned(code == 'B' ? 4 : 1);
      if (!bytes.ok()) return bytes.status();
      const absl::Status skipped = Bytes(*bytes).status();
      return skipped.ok() ? PushOther("bytes") : skipped;
    }
    case 'X':
      return PushString(4);
    case 0x8c:  // SHORT_BINUNICODE
      return PushString(1);
    case ')':
      return PushTuple(PickleValues());
    case 't':
      return PushTuple(PopToMark());
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
      return PushTuple(Pop(code - 0x84));
    case '}':
      return PushDict();
    case ']':
      return PushOther("a list");
    case 0x8f:  // EMPTY_SET
      return PushOther("a set");
    case 'a':  // APPEND; list and set elements are discarded
      return Pop(1).status();
    case 'e':   // APPENDS
    case 0x90:  // ADDITEMS
      return PopToMark().status();
    case 0x91: {  // FROZENSET
      const absl::Status popped = PopToMark().status();
      return popped.ok() ? PushOther("a set") : popped;
    }
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
      return Push(PickleValue{Kind::kName, 0, *name, *module});
    }
    case 0x93: {  // STACK_GLOBAL
      const absl::StatusOr<PickleValues> names = Pop(2);
      if (!names.ok()) return names.status();
      return Push(PickleValue{Kind::kName, 0, (*names)[1].text, (*names)[0].text});
    }
    case 0x81:  // NEWOBJ: creates an object, like a call
    case 'R':
      return Call();
    case 'Q':
      return Load();
    case 'b':  // BUILD: attributes such as the versions in a state_dict's _metadata
      return Pop(1).status();
    default:
      return absl::DataLossError("it contains objects other than named tensors");
  }
}

absl::Status PickleMachine::Call() {
  const absl::StatusOr<PickleValues> call = Pop(2);
  if (!call.ok()) return call.status();
  const PickleValue& name = (*call)[0];
  if (name.kind != Kind::kName || (*call)[1].kind != Kind::kTuple) return Damaged();
  if (name.module == "collections" && name.text == "OrderedDict") return PushDict();
  return Push(world_->Call(*this, name, MakeTuple((*call)[1])));
}

absl::Status PickleMachine::Load() {
  const absl::StatusOr<PickleValues> popped = Pop(1);
  if (!popped.ok()) return popped.status();
  if (popped->front().kind != Kind::kTuple) return Damaged();
  return Push(world_->Load(MakeTuple(popped->front())));
}

// Stores the items in the dictionary below them on the stack.
absl::Status PickleMachine::SetItems(const absl::StatusOr<PickleValues>& items) {
  if (!items.ok()) return items.status();
  if (stack_.empty() || items->size() % 2 != 0) return Damaged();
  if (stack_.back().kind == Kind::kOther) return absl::OkStatus();
  if (stack_.back().kind != Kind::kDict) return Damaged();
  absl::Status taken = memory_->Take(kGrowing * items->size() / 2 * sizeof(Items::value_type));
  if (!taken.ok()) return taken;
  Items& dict = dicts_[stack_.back().number];
  for (size_t i = 0; i < items->size(); i += 2) {
    // Numeric keys, as in optimizer state, become "".
    dict.emplace_back((*items)[i].text, (*items)[i + 1]);
  }
  return absl::OkStatus();
}

}  // namespace torchps
