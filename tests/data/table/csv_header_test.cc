#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/data/table/csv_fixture.h"
#include "torchps/data/table/csv.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

constexpr char kDecimals[] =
    "1.352,1.747,2.554,1\n0.087,-0.119,-0.13,0\n1.916,1.928,1.977,1\n0.175,0.025,-0.576,0\n"
    "4.551,2.899,4.399,2\n-0.955,-1.803,-0.061,0\n4.95,4.079,3.979,2\n";
constexpr char kIntegers[] = "5,3,9,1\n7,0,2,0\n1,6,4,1\n3,2,8,0\n9,5,0,2\n6,1,7,2\n0,4,3,1\n";
constexpr char kNamed[] =
    "1.352,1.747,2.554,rose\n0.087,-0.119,-0.13,lily\n1.916,1.928,1.977,rose\n"
    "0.175,0.025,-0.576,lily\n1.2,0.3,0.4,rose\n";
constexpr char kRising[] =
    "1.352,1.747,rose\n0.087,0.119,lily\n1.916,1.928,rose\n0.175,0.225,lily\n1.2,1.3,rose\n";

TEST_F(CsvTest, DetectsANumericHeaderFromLaterRows) {
  for (const std::string& table : {
           absl::StrCat("0,1,2,3\n", kDecimals),
           absl::StrCat("1,2,3,4\n", kDecimals),
           absl::StrCat("2019,2020,2021,2022\n", kDecimals),
           absl::StrCat("2019,2020,2021,kind\n", kDecimals),
           absl::StrCat("2019,2020,2021,kind\n", kIntegers),
           absl::StrCat("2019,2020,2021,kind\n", kNamed),
           absl::StrCat("0,1,2,3\n", kNamed),
           absl::StrCat("10,20,30,99\n", kDecimals),
           absl::StrCat("7,8,20,99\n", kDecimals),
           absl::StrCat("0,1,2,3\n", kIntegers),
           absl::StrCat("2019,2020,2021,2022\n", kIntegers),
           absl::StrCat("10,20,30,99\n", kIntegers),
           absl::StrCat("2019,2020,kind\n", kRising),
           absl::StrCat("350.5,351,351.5,kind\n", kDecimals),
           std::string("0,1,2,3\n1.352,1.747,2.554,1\n0.087,-0.119,-0.13,0\n"),
           std::string("0,1,2\n1.5,2.5,0\n0.5,3.5,1\n2.5,1.5,1\n0.2,1.2,0\n0.4,1.7,2\n"),
       }) {
    const RowSet rows = Rows(table);
    EXPECT_TRUE(rows.had_header) << table;
    EXPECT_EQ(rows.columns[0].name, table.substr(0, table.find(','))) << table;
  }
}

TEST_F(CsvTest, DetectsAHeaderWithAnUnnamedIndexColumn) {
  std::string table = ",0,1,2,3\n";
  int row = 0;
  for (absl::string_view line : absl::StrSplit(kDecimals, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&table, row++, ",", line, "\n");
  }
  EXPECT_THAT(GetNames(Rows(table)), ElementsAre("0", "1", "2"));
}

TEST_F(CsvTest, TreatsAnAmbiguousFirstRowAsData) {
  std::string one_hot, digits, time, windows, ranks, scales;
  for (int i = 0; i < 30; ++i) {
    absl::StrAppend(&one_hot, i % 3 == 0, ",", i % 3 == 1, ",", i % 3 == 2, ",", i % 2, "\n");
    absl::StrAppend(&digits, "0,", i % 5, ",", (3 + i * 7) % 17, ",", (15 + i * 5) % 17, ",",
                    i % 10, "\n");
    absl::StrAppend(&time, i == 0 ? "0" : absl::StrCat(i * 0.01), ",",
                    i == 0 ? "1" : absl::StrCat(1 - 0.01 * i), ",2\n");
    absl::StrAppend(&windows, i, ",", i + 1, ",", i + 2, ",", i + 3, "\n");
    absl::StrAppend(&ranks, i % 3, ",", (i + 1) % 3, ",", (i + 2) % 3, ",", 3 - i % 4, "\n");
    absl::StrAppend(&scales, 20 + i % 7, ",", 160 + i % 13, ",", 30000 + i * 7919 % 999, ",",
                    i == 0 ? 2 : i % 2, "\n");
  }
  for (const std::string& table :
       {std::string("1,2,0\n3,4,1\n"), std::string("1,2,3,0\n4.5,5.1,6.2,1\n"),
        std::string("1,2,3,4\n5,6,7,8\n9,10,11,12\n"), std::string("0,1,2\n5,3,0\n7,8,1\n"),
        std::string("1,10\n2,9\n3,other\n"), absl::StrCat("1,2,3,1\n", kDecimals),
        absl::StrCat("4,2,0,1\n", kIntegers), absl::StrCat("1,1,1,9\n", kIntegers),
        absl::StrCat("20,170,30000,1\n", kDecimals), absl::StrCat("0.5,1.5,2.6,3\n", kDecimals),
        absl::StrCat("1,2,3,rose\n", kNamed), std::string("0,1,2,3\n"), one_hot, digits, time,
        windows, ranks, scales}) {
    const int64_t lines = std::count(table.begin(), table.end(), '\n');
    const RowSet rows = Rows(table);
    EXPECT_FALSE(rows.had_header) << table;
    EXPECT_EQ(rows.rows, lines) << table;
  }
}

TEST_F(CsvTest, DetectsANumericHeaderWithNumericTargets) {
  const std::string table = absl::StrCat("0,1,2,3\n", kDecimals);
  EXPECT_THAT(Rows(table, {"", {"3"}}).target_columns, ElementsAre("3"));
  EXPECT_FALSE(Rows(absl::StrCat("0,1,2,5\n", kDecimals), {"", {"3"}}).had_header);
  // The job requests a column by name, so the first row must be a header.
  const std::string years = absl::StrCat("2019,2020,2021,2022\n", kIntegers);
  EXPECT_THAT(GetNames(Rows(years, {"2020"})), ElementsAre("2019", "2021", "2022"));
  EXPECT_THAT(Rows(years, {"", {"2022"}}).target_columns, ElementsAre("2022"));
}

TEST_F(CsvTest, TheJobsHeaderSettingReplacesTheDetection) {
  CsvColumns columns;
  columns.header = true;
  EXPECT_THAT(GetNames(Rows("4,2,0\n1,2,1\n", columns)), ElementsAre("4", "2"));
  columns.header = false;
  EXPECT_FALSE(Rows(absl::StrCat("0,1,2,3\n", kDecimals), columns).had_header);
  ExpectInvalid("a,b,y\n1,2,0\n", "line 1, column 0: expected a number, not text", columns);
}

TEST_F(CsvTest, AFirstRowWithAClassIsData) {
  EXPECT_FALSE(Rows("5.1,3.5,setosa\n4.9,3.0,virginica\n").had_header);
  EXPECT_THAT(Rows("setosa,5.1,3.5\nvirginica,4.9,3.0\n", {"0"}).labels, ElementsAre(0, 1));
  EXPECT_THAT(Rows("NA,3.5,a\n1,2,b\n", WithMissing(CsvColumns::Missing::kKeep)).labels,
              ElementsAre(0, 1));
}

TEST_F(CsvTest, DetectsAHeaderAboveCategories) {
  const std::string rows = "red,S,yes\nblue,L,no\nred,L,no\nblue,S,yes\nred,S,no\nred,L,yes\n";
  const CsvColumns columns{"", {}, {}, {"0", "1"}};
  EXPECT_THAT(GetNames(Rows("color,size,sold\n" + rows, columns)), ElementsAre("color", "size"));
  EXPECT_FALSE(Rows(rows, columns).had_header);
  EXPECT_FALSE(Rows("green,M,no\n" + rows, columns).had_header);
  EXPECT_FALSE(Rows("red,1.5,yes\nblue,2,no\n", {"", {}, {}, {"0"}}).had_header);
}

}  // namespace
}  // namespace torchps
