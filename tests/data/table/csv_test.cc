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
using ::testing::IsEmpty;
using ::testing::IsNan;

class CsvTest : public ::testing::Test {
 protected:
  absl::StatusOr<RowSet> Read(const std::string& text, const CsvColumns& columns) {
    return ReadCsv(WriteFile(directory_, "table.csv", text), columns);
  }
  absl::StatusOr<RowSet> Read(const std::string& text, const std::string& label_column = "") {
    return Read(text, CsvColumns{label_column});
  }

  void ExpectError(const std::string& text, absl::StatusCode code, const std::string& part,
                   const CsvColumns& columns = {}) {
    const absl::Status status = Read(text, columns).status();
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
    ExpectError(
        "1,2,0\n1,2," + bad + "\n", absl::StatusCode::kInvalidArgument,
        "line 2, column 2: expected a class, an integer of 0 to 65535 (numbers to predict are "
        "named by data.csv.target_column)");
  }
}

TEST_F(CsvTest, AnUnknownLabelColumnListsTheKnownOnes) {
  ExpectError("a,b,y\n1,2,0\n", absl::StatusCode::kInvalidArgument,
              "a number of 0 to 2 or one of a, b, y, got \"z\"", {"z"});
  ExpectError("1,2,0\n", absl::StatusCode::kInvalidArgument, "a number of 0 to 2, got \"3\"",
              {"3"});
}

TEST_F(CsvTest, NoRowAndNoFeatureAreRefused) {
  ExpectError("", absl::StatusCode::kInvalidArgument, "at least one row");
  ExpectError("a,b\n", absl::StatusCode::kInvalidArgument, "at least one row");
  ExpectError("1\n2\n", absl::StatusCode::kInvalidArgument, "at least one feature column");
}

TEST_F(CsvTest, ClassesMayBeNamesAndAreNumberedInTheOrderOfTheirBytes) {
  const auto rows = Read("width,kind\n1,setosa\n2,virginica\n3,\"Iris, other\"\n4,setosa\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->class_names, ElementsAre("Iris, other", "setosa", "virginica"));
  EXPECT_THAT(rows->labels, ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(rows->values, ElementsAre(1, 2, 3, 4));
}

TEST_F(CsvTest, AFirstRowWithANamedClassIsNoHeader) {
  const auto rows = Read("5.1,3.5,setosa\n4.9,3.0,virginica\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size(), 2);
  EXPECT_THAT(rows->columns, ElementsAre("", ""));
  // The class stands first.
  EXPECT_THAT(Read("setosa,5.1,3.5\nvirginica,4.9,3.0\n", "0")->labels, ElementsAre(0, 1));
  EXPECT_THAT(Read("NA,3.5,a\n1,2,b\n", CsvColumns{"", {}, CsvColumns::Missing::kKeep})->labels,
              ElementsAre(0, 1));
}

TEST_F(CsvTest, OneNameAmongNumbersMakesNamesOfAll) {
  const auto rows = Read("1,10\n2,9\n3,other\n");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->class_names, ElementsAre("10", "9", "other"));
  EXPECT_THAT(rows->labels, ElementsAre(0, 1, 2));
  EXPECT_THAT(Read("1,2\n2,3\n")->class_names, IsEmpty());
}

TEST_F(CsvTest, MoreClassesThanALayerTakesAreRefused) {
  std::string text;
  for (int i = 0; i <= 65536; ++i) text += "1,c" + std::to_string(i) + "\n";
  ExpectError(text, absl::StatusCode::kInvalidArgument,
              "line 65537, column 1: expected at most 65536 different classes");
}

TEST_F(CsvTest, NumbersToPredictAreTakenInTheOrderAskedFor) {
  const CsvColumns columns{"", {"price", "0"}};
  const auto rows = Read("year,price,area\n1990,1.5e5,80\n2001,-2,95.5\n", columns);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size(), 2);
  EXPECT_THAT(rows->columns, ElementsAre("area"));
  EXPECT_THAT(rows->values, ElementsAre(80, 95.5));
  EXPECT_THAT(rows->target_columns, ElementsAre("price", "year"));
  EXPECT_THAT(rows->targets, ElementsAre(150000, 1990, -2, 2001));
  EXPECT_THAT(rows->labels, IsEmpty());
}

TEST_F(CsvTest, WhatIsPredictedIsANumberOnceAndNotEveryColumn) {
  const std::string text = "a,b,c\n1,2,x\n";
  ExpectError(text, absl::StatusCode::kInvalidArgument,
              "line 2, column 2 (c): expected a number that float32 holds, got \"x\"", {"", {"c"}});
  ExpectError(text, absl::StatusCode::kInvalidArgument, "each data.csv.target_column once",
              {"", {"a", "0"}});
  ExpectError(text, absl::StatusCode::kInvalidArgument, "at least one feature column",
              {"", {"a", "b", "c"}});
  ExpectError(
      text, absl::StatusCode::kInvalidArgument,
      "expected data.csv.target_column to be a number of 0 to 2 or one of a, b, c, got \"d\"",
      {"", {"d"}});
}

TEST_F(CsvTest, AMissingValueIsRefusedByLineAndColumnWithTheWaysOut) {
  for (const std::string missing : {"", "NA", "n/a", "NaN", "null", "None", "?", "-", "\"\""}) {
    ExpectError("a,b,y\n1,2,0\n3," + missing + ",1\n", absl::StatusCode::kInvalidArgument,
                "line 3, column 1 (b): expected a number that float32 holds, not a missing value "
                "(data.csv.missing: COLUMN_MEAN or DROP_ROW goes on without it)");
  }
}

TEST_F(CsvTest, AMissingValueMayBeKeptOrItsRowDropped) {
  const std::string text = "a,b,y\n1,?,0\nNA,4,1\n5,6,2\n";
  const auto kept = Read(text, CsvColumns{"", {}, CsvColumns::Missing::kKeep});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->values, ElementsAre(1, IsNan(), IsNan(), 4, 5, 6));
  EXPECT_THAT(kept->labels, ElementsAre(0, 1, 2));
  const auto dropped = Read(text, CsvColumns{"", {}, CsvColumns::Missing::kDropRow});
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_THAT(dropped->values, ElementsAre(5, 6));
  EXPECT_THAT(dropped->labels, ElementsAre(2));
  ExpectError("1,?,0\n", absl::StatusCode::kInvalidArgument,
              "at least one row of numbers, got none beside 1 with a missing value",
              {"", {}, CsvColumns::Missing::kDropRow});
}

TEST_F(CsvTest, WhatIsPredictedHasNoMeanToStandIn) {
  const CsvColumns::Missing keep = CsvColumns::Missing::kKeep;
  ExpectError("a,y\n1,\n", absl::StatusCode::kInvalidArgument,
              "line 2, column 1 (y): expected a class, not a missing value (data.csv.missing: "
              "DROP_ROW goes on without it)",
              {"", {}, keep});
  ExpectError("a,y\n1,NA\n", absl::StatusCode::kInvalidArgument, "line 2, column 1 (y)",
              {"", {"y"}, keep});
  EXPECT_THAT(Read("a,y\n1,NA\n2,none\n", CsvColumns{"", {}, keep})->class_names,
              ElementsAre("NA", "none"));
  EXPECT_THAT(Read("a,y\n1,\n2,x\n", CsvColumns{"", {}, CsvColumns::Missing::kDropRow})->values,
              ElementsAre(2));
}

TEST_F(CsvTest, AMissingFileIsNotFoundAndSaysWhatToDo) {
  const absl::Status status = ReadCsv("/nowhere/x.csv", {}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--data"));
}

TEST_F(CsvTest, DamagedTextIsAnswerOrErrorButNeverACrash) {
  const std::string text = "length,\"kind\",width\n1,0,2\n3,b,?\n";
  for (const CsvColumns& columns :
       {CsvColumns{"1"}, CsvColumns{"", {"width", "0"}, CsvColumns::Missing::kDropRow},
        CsvColumns{"kind", {}, CsvColumns::Missing::kKeep}}) {
    for (size_t at = 0; at < text.size(); ++at) {
      for (char byte : {'"', ',', ';', '\n', '\r', ' ', '-', 'e', '\0', '\xff'}) {
        std::string damaged = text;
        damaged[at] = byte;
        const auto rows = Read(damaged, columns);
        if (!rows.ok()) continue;
        EXPECT_GT(rows->size(), 0);
        EXPECT_EQ(rows->values.size(), rows->columns.size() * rows->size());
        EXPECT_EQ(rows->targets.size(), rows->target_columns.size() * rows->size());
      }
    }
  }
}

}  // namespace
}  // namespace torchps
