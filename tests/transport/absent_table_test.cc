#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torchps/transport/frame_payload.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<uint8_t> Written(const ElementRuns& runs) {
  std::vector<uint8_t> bytes(AbsentTableBytes(runs.size()));
  WriteAbsentTable(runs, bytes.data());
  return bytes;
}

std::string Refused(const std::vector<uint8_t>& bytes) {
  const absl::Status status = ReadAbsentTable(bytes).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(AbsentTableTest, WritesTheLiteralBytes) {
  EXPECT_THAT(Written({{1, 3}, {256, 257}}),
              ElementsAre(1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0));
}

TEST(AbsentTableTest, ReadsBackWhatItWrote) {
  for (const ElementRuns& runs : {ElementRuns(), ElementRuns{{0, 1}},
                                  ElementRuns{{0, 5}, {6, 7}, {1 << 24, (1 << 24) + 9}}}) {
    const auto read = ReadAbsentTable(Written(runs));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, runs);
  }
}

TEST(AbsentTableTest, RejectsMalformedTablesWithTheReason) {
  EXPECT_THAT(Refused(std::vector<uint8_t>(12)), HasSubstr("has 12 bytes; expected 8"));
  EXPECT_THAT(Refused(std::vector<uint8_t>(kMaxAbsentTableBytes + 8)), HasSubstr("65536 runs"));
  EXPECT_THAT(Refused(Written({{4, 4}})), HasSubstr("from element 4 to 4"));
  EXPECT_THAT(Refused(Written({{4, 6}, {6, 8}})), HasSubstr("begins at 7 or later"));
  EXPECT_THAT(Refused(Written({{4, 6}, {1, 2}})), HasSubstr("from element 1 to 2"));
}

}  // namespace
}  // namespace torchps
