#include "torchps/data/table/csv.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/table/csv_fixture.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;

using Missing = CsvColumns::Missing;

TEST_F(CsvTest, WithoutALabelColumnTheLastColumnIsTheLabel) {
  const RowSet rows = Rows("1,2.5,0\n-3,4e2,1\n");
  EXPECT_THAT(rows.values, ElementsAre(1, 2.5, -3, 400));
  EXPECT_THAT(rows.labels, ElementsAre(0, 1));
  EXPECT_THAT(GetNames(rows), ElementsAre("", ""));
  EXPECT_EQ(rows.rows, 2);
  EXPECT_TRUE(rows.has_answers);
  EXPECT_FALSE(rows.had_header);
}

TEST_F(CsvTest, DetectsATextHeader) {
  const std::string text = "length,kind,width\n1,0,2\n3,2,4\n";
  for (const std::string column : {"kind", "1"}) {
    const RowSet rows = Rows(text, {column});
    EXPECT_THAT(GetNames(rows), ElementsAre("length", "width"));
    EXPECT_THAT(rows.values, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(rows.labels, ElementsAre(0, 2));
    EXPECT_EQ(rows.label_column, "kind");
    EXPECT_TRUE(rows.had_header);
  }
}

TEST_F(CsvTest, ErrorNamesALineOfAnotherLength) {
  ExpectError("1,2,0\n1,2\n", absl::StatusCode::kDataLoss, "line 2: expected 3 fields");
  ExpectError("1,2,0\n\n1,2,0,4\n", absl::StatusCode::kDataLoss,
              "line 3: expected 3 fields as in the first line, got 4 (a field that holds ',' needs "
              "double quotes)");
}

TEST_F(CsvTest, ErrorNamesTheFieldThatIsNoNumber) {
  ExpectInvalid("a,b,y\n1,x,0\n",
                "line 2, column 1 (b): expected a number, not text (data.csv.category_column takes "
                "a column of few different values, data.csv.ignore_column leaves out an id or free "
                "text), got \"x\"");
  for (const std::string bad : {"", "nan", "inf", "1e39", "-1e39"}) {
    ExpectInvalid("0,0,0\n" + bad + ",1,0\n", "line 2, column 0:");
  }
}

TEST_F(CsvTest, RejectsDatesAndTimesInAFeature) {
  for (const std::string date :
       {"2024-01-31", "31.01.2024", "01/31/2024", "1/31/24", "2024/1/31", "2024-01-31T10:00:00",
        "2024-01-31 10:00:00.5+01:00", "10:30", "10:30:15 PM", "31-Jan-2024", "2024-01"}) {
    ExpectInvalid("a,b,y\n1," + date + ",0\n",
                  "line 2, column 1 (b): expected a number, not a date or time (convert it to a "
                  "number, such as days since a day, or leave the column out with "
                  "data.csv.ignore_column), got \"" +
                      date);
  }
}

TEST_F(CsvTest, RejectsDecimalCommasAndThousandsSeparators) {
  const std::pair<std::string, std::string> kCases[] = {
      {"3,14", "3.14"},
      {"-,5e3", "-.5e3"},
      {"1,234", "1.234 or 1234"},
      {"1,234,567.5", "1234567.5"},
      {"1.234,5", "1234.5"},
      {"1.234.567", "1234567"},
      {"1'234.5", "1234.5"},
      {"1 234,5", "1234.5"},
      {"1\xc2\xa0"
       "234",
       "1234"},
      {"0,125", "0.125"},
  };
  for (const auto& [field, meant] : kCases) {
    ExpectInvalid("a;b;y\n1;" + field + ";0\n",
                  "line 2, column 1 (b): expected a number with a decimal point, not a decimal "
                  "comma or thousands separator (write " +
                      meant + ")");
  }
}

TEST_F(CsvTest, RejectsUnitsAroundANumber) {
  const std::pair<std::string, std::string> kCases[] = {{"$13.38", "13.38"},
                                                        {"13.38 €", "13.38"},
                                                        {"12%", "12"},
                                                        {"\u22122.5", "-2.5"},
                                                        {"7\u00a0", "7"}};
  for (const auto& [field, meant] : kCases) {
    ExpectInvalid(
        "a,b,y\n1," + field + ",0\n",
        "line 2, column 1 (b): expected a number without other signs (write " + meant + ")");
  }
  ExpectInvalid("a;b;y\n1;$1,234.50;0\n", "thousands separator (write 1234.50)");
}

TEST_F(CsvTest, RejectsALabelThatIsNoClass) {
  for (const std::string bad : {"0.5", "1.5", "1e300", "nan"}) {
    ExpectInvalid("1,2,0\n1,2," + bad + "\n",
                  "line 2, column 2: expected a class, a whole number or a name "
                  "(use data.csv.target_column for numbers to predict)");
  }
}

TEST_F(CsvTest, ErrorForAnUnknownLabelColumnListsTheColumns) {
  ExpectInvalid("a,b,y\n1,2,0\n", "a number of 0 to 2 or one of a, b, y, got \"z\"", {"z"});
  ExpectInvalid("1,2,0\n", "a number of 0 to 2, got \"3\"", {"3"});
}

TEST_F(CsvTest, RejectsAFileWithoutRowsOrFeatures) {
  ExpectInvalid("", "expected at least one row, got an empty file");
  ExpectInvalid("\n \r\n", "expected at least one row, got an empty file");
  ExpectInvalid("a,b\n", "expected at least one row below the header, got none");
  ExpectInvalid("1\n2\n", "expected at least one feature column");
}

TEST_F(CsvTest, NumbersClassNamesInByteOrder) {
  const RowSet rows = Rows("width,kind\n1,setosa\n2,virginica\n3,\"Iris, other\"\n4,setosa\n");
  EXPECT_THAT(rows.class_names, ElementsAre("Iris, other", "setosa", "virginica"));
  EXPECT_THAT(rows.labels, ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(rows.values, ElementsAre(1, 2, 3, 4));
}

TEST_F(CsvTest, IfOneClassIsANameAllClassesAreNames) {
  const RowSet rows = Rows("1,10\n2,9\n3,other\n");
  EXPECT_THAT(rows.class_names, ElementsAre("10", "9", "other"));
  EXPECT_THAT(rows.labels, ElementsAre(0, 1, 2));
}

TEST_F(CsvTest, SparseOrNegativeClassNumbersBecomeNames) {
  const auto classes = [this](const std::string& a, const std::string& b, const std::string& c) {
    return Rows("x,y\n1," + a + "\n2," + b + "\n3," + c + "\n");
  };
  const RowSet gaps = classes("60000", "1001.0", "2002");
  EXPECT_THAT(gaps.class_names, ElementsAre("1001", "2002", "60000"));
  EXPECT_THAT(gaps.labels, ElementsAre(2, 0, 1));
  EXPECT_THAT(classes("1", "-1", "1").class_names, ElementsAre("-1", "1"));
  EXPECT_THAT(classes("1", "-1", "1").labels, ElementsAre(1, 0, 1));
  EXPECT_THAT(classes("70000", "9", "10").class_names, ElementsAre("9", "10", "70000"));
  // Half of the numbers from 0 to 5 occur, so they stay class numbers. With 6 as the highest, less
  // than half do.
  EXPECT_THAT(classes("5", "3.0", "1").class_names, IsEmpty());
  EXPECT_THAT(classes("5", "3.0", "1").labels, ElementsAre(5, 3, 1));
  EXPECT_THAT(classes("6", "3", "1").class_names, ElementsAre("1", "3", "6"));
}

TEST_F(CsvTest, RejectsNumbersThatDoNotRepeatAsClasses) {
  std::string text = "x,price\n";
  for (int i = 0; i < 200; ++i) text += "1," + std::to_string(100000 + 37 * i) + "\n";
  ExpectInvalid(text, "expected classes that repeat, not 200 different numbers in 200 rows");
}

TEST_F(CsvTest, RejectsTooManyClasses) {
  std::string text;
  for (int i = 0; i <= 65536; ++i) text += "1,c" + std::to_string(i) + "\n";
  ExpectInvalid(text, "line 65537, column 1: expected at most 65536 different classes");
}

TEST_F(CsvTest, ReturnsTargetsInTheRequestedOrder) {
  const CsvColumns columns{"", {"price", "0"}};
  const RowSet rows = Rows("year,price,area\n1990,1.5e5,80\n2001,-2.1,95.5\n", columns);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_THAT(GetNames(rows), ElementsAre("area"));
  EXPECT_THAT(rows.values, ElementsAre(80, 95.5));
  EXPECT_THAT(rows.target_columns, ElementsAre("price", "year"));
  EXPECT_THAT(rows.targets, ElementsAre(150000, 1990, -2.1, 2001));
  EXPECT_THAT(rows.labels, IsEmpty());
}

TEST_F(CsvTest, RejectsAColumnWithTwoPurposes) {
  const std::string text = "a,b,c\n1,2,x\n";
  ExpectInvalid(text, "line 2, column 2 (c): expected a number, not text, got \"x\"", {"", {"c"}});
  ExpectInvalid(text, "expected one purpose of column 0 (a), got data.csv.target_column and",
                {"", {"a", "0"}});
  ExpectInvalid(text, "expected one purpose of column 1 (b), got data.csv.ignore_column and",
                {"b", {}, {"1"}});
  ExpectInvalid(text, "got data.csv.label_column (the last column unless set) and",
                {"", {}, {}, {"c"}});
  ExpectInvalid(text, "at least one feature column", {"", {"a", "b", "c"}});
  ExpectInvalid(text, "expected data.csv.target_column to be a number of 0 to 2 or one of a, b, c",
                {"", {"d"}});
}

TEST_F(CsvTest, RejectsADuplicateColumnName) {
  const std::string text = "y,x,y,z\n1,2,3,0\n";
  for (const CsvColumns& columns :
       {CsvColumns{}, CsvColumns{"y"}, CsvColumns{"", {"y"}}, CsvColumns{"", {}, {"y"}},
        CsvColumns{"", {}, {"0"}}, CsvColumns{"", {}, {}, {"y"}}}) {
    ExpectInvalid(text, "expected one column named \"y\", got columns 0 and 2", columns);
  }
}

TEST_F(CsvTest, IgnoredColumnsAreNotParsed) {
  const RowSet rows = Rows("id,a,note,y\nx7,1,\"hi, you\",0\nx8,2,,1\n", {"", {}, {"0", "note"}});
  EXPECT_THAT(GetNames(rows), ElementsAre("a"));
  EXPECT_THAT(rows.values, ElementsAre(1, 2));
  EXPECT_THAT(rows.left_out, ElementsAre("id", "note"));
  // In a table without a header, the last column is the class, unless it is ignored.
  const RowSet plain = Rows("x7,1,0,?\nx8,2,1,?\n", {"", {}, {"0", "3"}});
  EXPECT_THAT(plain.values, ElementsAre(1, 2));
  EXPECT_THAT(plain.labels, ElementsAre(0, 1));
  EXPECT_THAT(plain.left_out, ElementsAre("0", "3"));
}

TEST_F(CsvTest, SkipsAnUnnamedColumnAmongNamedColumns) {
  const RowSet rows = Rows(",a,y\n0,5,no\n1,6,yes\n");
  EXPECT_THAT(GetNames(rows), ElementsAre("a"));
  EXPECT_THAT(rows.values, ElementsAre(5, 6));
  EXPECT_THAT(rows.left_out, ElementsAre("0"));
}

TEST_F(CsvTest, NumbersCategoriesInByteOrder) {
  const std::string text = "color,a,size,y\nred,1,L,0\nblue,2,,1\nred,3,S,0\n";
  const RowSet rows = Rows(text, WithMissing(Missing::kKeep, {"", {}, {}, {"color", "2"}}));
  EXPECT_THAT(rows.columns[0].categories, ElementsAre("blue", "red"));
  EXPECT_THAT(rows.columns[1].categories, IsEmpty());
  EXPECT_THAT(rows.columns[2].categories, ElementsAre("L", "S"));
  EXPECT_THAT(rows.values, ElementsAre(1, 1, 0, 0, 2, IsNan(), 1, 3, 1));
  ExpectInvalid(text, "line 3, column 2 (size): expected a value, not a missing value",
                {"", {}, {}, {"color", "size"}});
  EXPECT_EQ(Rows(text, WithMissing(Missing::kDropRow, {"", {}, {}, {"color", "2"}}))
                .columns[0]
                .categories.size(),
            1u);
}

TEST_F(CsvTest, RejectsACategoryWithTooManyValues) {
  std::string text = "id,y\n";
  for (int i = 0; i <= 1000; ++i) text += "x" + std::to_string(i) + ",0\n";
  ExpectInvalid(text,
                "line 1002, column 0 (id): expected at most 1000 different categories "
                "(use data.csv.ignore_column for an id), got \"x1000\"",
                {"", {}, {}, {"id"}});
}

TEST_F(CsvTest, ErrorNamesTheMissingValueAndTheRemedies) {
  for (const std::string missing : {"", "NA", "n/a", "NaN", "null", "None", "?", "-", "\"\""}) {
    ExpectInvalid("a,b,y\n1,2,0\n3," + missing + ",1\n",
                  "line 3, column 1 (b): expected a value, not a missing value (data.csv.missing: "
                  "COLUMN_MEAN or DROP_ROW accepts it)");
  }
}

TEST_F(CsvTest, KeepsAMissingValueAsNanOrDropsTheRow) {
  const std::string text = "a,b,y\n1,?,0\nNA,4,1\n5,6,2\n";
  const RowSet kept = Rows(text, WithMissing(Missing::kKeep));
  EXPECT_THAT(kept.values, ElementsAre(1, IsNan(), IsNan(), 4, 5, 6));
  EXPECT_THAT(kept.labels, ElementsAre(0, 1, 2));
  const RowSet dropped = Rows(text, WithMissing(Missing::kDropRow));
  EXPECT_THAT(dropped.values, ElementsAre(5, 6));
  EXPECT_EQ(dropped.rows, 1);
  EXPECT_EQ(dropped.dropped, 2);
  ExpectInvalid("1,?,0\n", "at least one complete row, got only 1 with a missing value",
                WithMissing(Missing::kDropRow));
}

TEST_F(CsvTest, RejectsAMissingAnswer) {
  ExpectInvalid("a,y\n1,\n",
                "line 2, column 1 (y): expected a class, not a missing value (data.csv.missing: "
                "DROP_ROW accepts it)",
                WithMissing(Missing::kKeep));
  ExpectInvalid("a,y\n1,NA\n", "line 2, column 1 (y): expected a number to predict, not a missing",
                WithMissing(Missing::kKeep, {"", {"y"}}));
  EXPECT_THAT(Rows("a,y\n1,NA\n2,none\n").class_names, ElementsAre("NA", "none"));
  EXPECT_THAT(Rows("a,y\n1,\n2,x\n", WithMissing(Missing::kDropRow)).values, ElementsAre(2));
}

TEST_F(CsvTest, ErrorNamesTheMissingFileAndTheRemedy) {
  const absl::Status status = ReadCsv("/nowhere/x.csv", {}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--data"));
}

TEST_F(CsvTest, DamagedTextNeverCrashes) {
  const std::string text = "length,\"kind\",width\n1,0,2\n3,b,?\n";
  CsvColumns known{""};
  known.schema = TableSchema{{{"length"}, {"kind", {"0", "b"}}}, "width", {}, 3, {}};
  known.needs_answers = false;
  for (const CsvColumns& columns :
       {WithMissing(Missing::kDropRow, {"", {"width", "0"}}),
        WithMissing(Missing::kKeep, {"kind", {}, {"2"}, {"0"}}), known}) {
    for (size_t at = 0; at < text.size(); ++at) {
      for (char byte : {'"', ',', ';', '\n', '\r', ' ', '-', 'e', '\0', '\xff'}) {
        std::string damaged = text;
        damaged[at] = byte;
        const auto rows = Read(damaged, columns);
        if (!rows.ok()) continue;
        EXPECT_GT(rows->rows, 0);
        EXPECT_EQ(rows->values.size(), rows->columns.size() * rows->rows);
        if (!rows->has_answers) continue;
        EXPECT_EQ(rows->targets.size(), rows->target_columns.size() * rows->rows);
      }
    }
  }
}

}  // namespace
}  // namespace torchps
