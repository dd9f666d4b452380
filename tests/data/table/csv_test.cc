#include "data/table/csv.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/test_files.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CsvTest : public ::testing::Test {
 protected:
  absl::StatusOr<RowSet> Read(const std::string& text, const std::string& label_column = "") {
    return ReadCsv(WriteFile(directory_, "table.csv", text), label_column);
  }

  void ExpectError(const std::string& text, absl::StatusCode code, const std::string& part,
                   const std::string& label_column = "") {
    const absl::Status status = Read(text, label_column).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_THAT(std::string(status.message()), HasSubstr("table.csv"));
  }

  const std::string directory_ = NewDirectory();
};

TEST_F(CsvTest, TheLastColumnIsTheLabelUnlessNamed) {
  const auto rows = Read("1,2.5,0\n-3,4e2,1\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->values, ElementsAre(1, 2.5, -3, 400));
  EXPECT_THAT(rows->labels, ElementsAre(0, 1));
  EXPECT_THAT(rows->columns, ElementsAre("", ""));
}

TEST_F(CsvTest, AHeaderIsDetectedAndTheLabelMayBeNamedOrNumbered) {
  const std::string text = "length,kind,width\n1,0,2\n3,2,4\n";
  for (const std::string column : {"kind", "1"}) {
    const auto rows = Read(text, column);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_THAT(rows->columns, ElementsAre("length", "width"));
    EXPECT_THAT(rows->values, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(rows->labels, ElementsAre(0, 2));
  }
}

TEST_F(CsvTest, QuotesSpacesBlankLinesCrAndByteOrderMarkArePassedOver) {
  const auto rows =
      Read("\xef\xbb\xbf \"a \"\"b\"\"\" ,\"c,d\",label\r\n\r\n 1 ,\"2\", 1\r\n\n3,4,0");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->columns, ElementsAre("a \"b\"", "c,d"));
  EXPECT_THAT(rows->values, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(rows->labels, ElementsAre(1, 0));
}

TEST_F(CsvTest, SemicolonsAndTabsSeparateToo) {
  EXPECT_THAT(Read("1;2;0\n")->values, ElementsAre(1, 2));
  EXPECT_THAT(Read("1\t2\t0\n")->values, ElementsAre(1, 2));
}

TEST_F(CsvTest, ALineOfAnotherLengthIsDataLossAndNamed) {
  ExpectError("1,2,0\n1,2\n", absl::StatusCode::kDataLoss, "line 2: expected 3 fields, got 2");
  ExpectError("1,2,0\n\n1,2,0,4\n", absl::StatusCode::kDataLoss,
              "line 3: expected 3 fields, got 4");
}

TEST_F(CsvTest, AnOpenQuoteIsDataLoss) {
  ExpectError("1,2,0\n1,\"2,0\n", absl::StatusCode::kDataLoss, "line 2: expected a closing quote");
}

TEST_F(CsvTest, AFieldThatIsNoUsableNumberIsNamedByLineAndColumn) {
  ExpectError("a,b,y\n1,x,0\n", absl::StatusCode::kInvalidArgument,
              "line 2, column 1 (b): expected a number that float32 holds, got \"x\"");
  for (const std::string bad : {"", "nan", "inf", "1e39", "-1e39"}) {
    ExpectError("0,0,0\n" + bad + ",1,0\n", absl::StatusCode::kInvalidArgument,
                "line 2, column 0:");
  }
}

TEST_F(CsvTest, ALabelThatIsNoClassIsRefused) {
  for (const std::string bad : {"-1", "0.5", "65536", "1e300"}) {
    ExpectError("1,2,0\n1,2," + bad + "\n", absl::StatusCode::kInvalidArgument, "line 2, column 2");
  }
}

TEST_F(CsvTest, AnUnknownLabelColumnListsTheKnownOnes) {
  ExpectError("a,b,y\n1,2,0\n", absl::StatusCode::kInvalidArgument,
              "a number of 0 to 2 or one of a, b, y, got \"z\"", "z");
  ExpectError("1,2,0\n", absl::StatusCode::kInvalidArgument, "a number of 0 to 2, got \"3\"", "3");
}

TEST_F(CsvTest, NoRowAndNoFeatureAreRefused) {
  ExpectError("", absl::StatusCode::kInvalidArgument, "at least one row");
  ExpectError("a,b\n", absl::StatusCode::kInvalidArgument, "at least one row");
  ExpectError("1\n2\n", absl::StatusCode::kInvalidArgument, "at least one feature column");
}

TEST_F(CsvTest, AMissingFileIsNotFoundAndSaysWhatToDo) {
  const absl::Status status = ReadCsv("/nowhere/x.csv", "").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--data"));
}

TEST_F(CsvTest, DamagedTextIsAnswerOrErrorButNeverACrash) {
  const std::string text = "length,\"kind\",width\n1,0,2\n3,2,4\n";
  for (size_t at = 0; at < text.size(); ++at) {
    for (char byte : {'"', ',', ';', '\n', '\r', ' ', '-', 'e', '\0', '\xff'}) {
      std::string damaged = text;
      damaged[at] = byte;
      const auto rows = Read(damaged, "1");
      if (rows.ok()) {
        EXPECT_EQ(rows->values.size(), rows->columns.size() * rows->labels.size());
      }
    }
  }
}

}  // namespace
}  // namespace torchps
