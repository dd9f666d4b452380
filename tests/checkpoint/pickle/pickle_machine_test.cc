#include "torchps/checkpoint/pickle/pickle_machine.h"

#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace torchps {
namespace {

using Kind = PickleValue::Kind;

// Records each call and returns its number. Loads an id as the id's first number.
class NotedWorld final : public PickleMachine::World {
 public:
  absl::StatusOr<PickleValue> Call(const PickleMachine&, const PickleValue& name,
                                   absl::Span<const PickleValue> arguments) override {
    calls.push_back(std::string(name.module) + "." + std::string(name.text) + "/" +
                    std::to_string(arguments.size()));
    return PickleValue{Kind::kCalled, static_cast<int64_t>(calls.size() - 1), {}, {}};
  }
  absl::StatusOr<PickleValue> Load(absl::Span<const PickleValue> id) override {
    if (id.empty()) return absl::DataLossError("nothing has no name");
    return PickleValue{Kind::kLoaded, id[0].number, {}, {}};
  }

  std::vector<std::string> calls;
};

class PickleMachineTest : public ::testing::Test {
 protected:
  // Runs the instructions and returns the result.
  absl::StatusOr<PickleValue> Run(const std::string& instructions) {
    pickle_ = instructions + ".";
    machines_.emplace_back(pickle_, &memory_, &world_);
    return machines_.back().Run();
  }
  PickleValue Made(const std::string& instructions) {
    const absl::StatusOr<PickleValue> made = Run(instructions);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : PickleValue();
  }
  const PickleMachine& machine() const { return machines_.back(); }

  NotedWorld world_;
  PickleMemory memory_{1 << 20};
  std::string pickle_;
  std::deque<PickleMachine> machines_;
};

TEST_F(PickleMachineTest, ParsesLittleEndianNumbers) {
  EXPECT_EQ(Made("K\xff").number, 255);
  EXPECT_EQ(Made("M\x01\x02").number, 0x0201);
  EXPECT_EQ(Made("J\xfe\xff\xff\xff").number, -2);
  EXPECT_EQ(Made(std::string("\x8a\x00", 2)).number, 0);
  EXPECT_EQ(Made("\x8a\x01\xff").number, -1);
  EXPECT_EQ(Made(std::string("\x8a\x02\xff\x00", 4)).number, 255);
  EXPECT_EQ(Made("\x8a\x09" + std::string(9, '\1')).text, "a number") << "too long to keep";
}

TEST_F(PickleMachineTest, ATupleCollectsValuesSinceTheMark) {
  const PickleValue made = Made("(K\x01(K\x02tK\x03t");
  ASSERT_EQ(made.kind, Kind::kTuple);
  const absl::Span<const PickleValue> outer = machine().MakeTuple(made);
  ASSERT_EQ(outer.size(), 3u);
  EXPECT_EQ(outer[0].number, 1);
  ASSERT_EQ(outer[1].kind, Kind::kTuple);
  EXPECT_EQ(machine().MakeTuple(outer[1])[0].number, 2);
  EXPECT_EQ(outer[2].number, 3);
}

TEST_F(PickleMachineTest, ADictionaryKeepsTheFileOrder) {
  const PickleValue made = Made(
      "}(\x8c\x01zK\x01\x8c\x01"
      "aK\x02u\x8c\x01zK\x03s");
  ASSERT_EQ(made.kind, Kind::kDict);
  const PickleMachine::Items& items = machine().GetItems(made);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].first, "z");
  EXPECT_EQ(items[1].first, "a");
  EXPECT_EQ(items[2].first, "z");
  EXPECT_EQ(items[2].second.number, 3);
  EXPECT_EQ(Made("ccollections\nOrderedDict\n)R").kind, Kind::kDict);
  EXPECT_TRUE(world_.calls.empty());
}

TEST_F(PickleMachineTest, AsksTheWorldToResolveCallsAndPersistentIds) {
  EXPECT_EQ(Made("cos\nsystem\n(\x8c\x02lstR").kind, Kind::kCalled);
  ASSERT_EQ(world_.calls.size(), 1u);
  EXPECT_EQ(world_.calls[0], "os.system/1");
  const PickleValue loaded = Made("(K\x07tQ");
  EXPECT_EQ(loaded.kind, Kind::kLoaded);
  EXPECT_EQ(loaded.number, 7);
  EXPECT_EQ(Run(")Q").status(), absl::DataLossError("nothing has no name"));
}

TEST_F(PickleMachineTest, ReadsBackTheValuesStoredInMemos) {
  // Stores 5 in memo 9. Then stores 6 in the first free memo, which is number 1 because one memo is
  // in use.
  const PickleValue made = Made("(K\x05q\x09K\x06\x94h\x09h\x01t");
  ASSERT_EQ(made.kind, Kind::kTuple);
  const absl::Span<const PickleValue> values = machine().MakeTuple(made);
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[2].number, 5);
  EXPECT_EQ(values[3].number, 6);
}

TEST_F(PickleMachineTest, ReportsDamageAsDataLoss) {
  const std::vector<std::string> damaged = {
      "",                      // empty result
      "K",                     // truncated instruction
      "K\x01K\x02",            // two results
      "t",                     // no mark
      "(K\x01\x86",            // a mark instead of a value
      "K\x01\x8c\x01zK\x02s",  // items added to a number
      "}(\x8c\x01zu",          // a name without a value
      "h\x01",                 // unknown memo
      "cmodule",               // unterminated name
      "K\x01)R",               // calls a number
      "\xff",                  // unknown instruction
  };
  for (const std::string& pickle : damaged) {
    const absl::StatusOr<PickleValue> made = Run(pickle);
    EXPECT_TRUE(absl::IsDataLoss(made.status())) << testing::PrintToString(pickle);
  }
}

}  // namespace
}  // namespace torchps
