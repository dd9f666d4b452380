#include <string>

#include "tests/data/table/csv_fixture.h"
#include "torchps/data/table/csv.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

// Converts ASCII text to UTF-16.
std::string Utf16(const std::string& ascii, bool big_endian) {
  std::string bytes;
  for (char c : ascii) bytes += big_endian ? std::string{'\0', c} : std::string{c, '\0'};
  return bytes;
}

TEST_F(CsvTest, IgnoresQuotesSpacesAndBlankLines) {
  const RowSet rows =
      Rows("\xef\xbb\xbf \"a \"\"b\"\"\" ,\"c,d\",label\r\n\r\n 1 ,\"2\", 1\r\n\n3,4,0");
  EXPECT_THAT(GetNames(rows), ElementsAre("a \"b\"", "c,d"));
  EXPECT_THAT(rows.values, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(rows.labels, ElementsAre(1, 0));
}

TEST_F(CsvTest, DetectsTheSeparator) {
  for (const std::string text : {
           "a b,c,y\n1,2,0\n3,4,1\n",
           "a;b;y\n1;2;0\n3;4;1\n",
           "a\tb\ty\n1\t2\t0\n3\t4\t1\n",
           "a|b|y\n1|2|0\n3|4|1\n",
           "  a   b \t y\n1   2   0\n  3 4 1  \n",
           "\"a, in m\";\"b, in m\";y\n1;2;0\n3;4;1\n",  // separators inside quotes do not count
           "a, in m;b, in m;y\n1;2;0\n3;4;1\n",
           "a; b; c,\"y,z\",x\n1,2,0\n3,4,1\n",
           "sep=;\na;b,c,d,e;y\n1;2;0\n3;4;1\n",
           "\"SEP=|\"\r\na|b,c,d,e|y\r\n1|2|0\r\n3|4|1\r\n",
           "sep=\t\na\tb c\ty\n1\t2\t0\n3\t4\t1\n",
       }) {
    const RowSet rows = Rows(text);
    EXPECT_THAT(rows.values, ElementsAre(1, 2, 3, 4)) << text;
    EXPECT_THAT(rows.labels, ElementsAre(0, 1)) << text;
  }
  EXPECT_THAT(Rows("1.5 2 0\n").values, ElementsAre(1.5, 2));
  ExpectInvalid("3,14;2,5;0\n2,14;2,5;1\n", "a decimal comma");
  ExpectInvalid(
      "height in cm\n150\n160\n",
      "got none in the first line (',', ';', '|', a tab or spaces separate columns; delete");
}

TEST_F(CsvTest, AcceptsCrLineEndings) {
  EXPECT_THAT(Rows("a,b,y\r1,2,0\r3,4,1\r").values, ElementsAre(1, 2, 3, 4));
  ExpectInvalid("a,b,y\r1,2,0\r\r3,x,1\r", "line 4, column 1 (b)");
  ExpectInvalid("sep=,\r\na,b,y\r\n1,x,0\r\n", "line 3, column 1 (b)");
}

TEST_F(CsvTest, ReadsTextThatIsNotUtf8AsWindows1252) {
  const RowSet rows = Rows(
      "gr\xf6\xdf"
      "e,\x80,y\n1,2,\xe9t\xe9\n3,4,b\n");
  EXPECT_THAT(GetNames(rows), ElementsAre("größe", "€"));
  EXPECT_THAT(rows.class_names, ElementsAre("b", "été"));
  EXPECT_THAT(GetNames(Rows("größe,b,y\n1,2,0\n3,4,1\n")), ElementsAre("größe", "b"));
}

TEST_F(CsvTest, ConvertsUtf16) {
  const std::string text = "a,b,y\r\n1,2,0\r\n3,4,1\r\n";
  for (const std::string& bytes : {"\xff\xfe" + Utf16(text, false), "\xfe\xff" + Utf16(text, true),
                                   Utf16(text, false), Utf16(text, true)}) {
    EXPECT_THAT(Rows(bytes).values, ElementsAre(1, 2, 3, 4));
  }
  // U+00E9, U+20AC, U+1F600 and half a surrogate pair.
  const std::string name("\xff\xfe\xe9\x00\xac\x20\x3d\xd8\x00\xde\x3d\xd8", 12);
  const RowSet rows = Rows(name + Utf16(",y\n1,0\n", false));
  EXPECT_THAT(GetNames(rows), ElementsAre("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd"));
  ExpectError("\xff\xfe" + Utf16(text, false) + "x", absl::StatusCode::kDataLoss, "UTF-16");
}

TEST_F(CsvTest, RejectsFilesThatAreNotText) {
  const std::string zeros(20, '\0');
  const std::pair<std::string, std::string> kCases[] = {
      {"PK\x03\x04" + zeros, "a spreadsheet file (.xlsx, .ods) or another zip file"},
      {"\xd0\xcf\x11\xe0" + zeros, "a spreadsheet file (.xls)"},
      {"PAR1\x15" + zeros, "a Parquet file"},
      {"%PDF-1.7\n1,2,0\n", "a PDF file"},
      {Gzip(Gzip("1,2,0\n")), "a gzip file"},
      {"<!DOCTYPE html>\n<html>\n", "a web page"},
      {std::string("1,2,0\n\0,2,1\n", 12), "a binary file"},
      {std::string("\xff\xfe\0\0"
                   "1\0\0\0,\0\0\0",
                   12),
       "a binary file"},  // UTF-32
  };
  for (const auto& [bytes, kind] : kCases) {
    ExpectInvalid(bytes, "expected a table as text, got " + kind);
    ExpectInvalid(bytes, "(export it as CSV, a spreadsheet sheet by sheet)");
  }
  EXPECT_THAT(Rows(Gzip("1,2,0\n3,4,1\n")).values, ElementsAre(1, 2, 3, 4));
}

TEST_F(CsvTest, TextAfterAClosingQuoteIsDataLoss) {
  const std::string part =
      "line 2, column 1: expected a separator behind the closing quote, got text";
  ExpectError("1,2,0\n1,\"abc\"def,0\n", absl::StatusCode::kDataLoss, part);
  ExpectError("1 2 0\n1 \"2\"3 0\n", absl::StatusCode::kDataLoss, part);
  // Inside a field, a quote is a plain character.
  EXPECT_THAT(Rows("a,y\n1,5\" pipe\n2,6\" pipe\n").class_names,
              ElementsAre("5\" pipe", "6\" pipe"));
}

TEST_F(CsvTest, AnOpenQuoteIsDataLoss) {
  for (const std::string text : {"1,2,0\n1,\"2,0\n", "1,2,0\n1,\"2\n3\",0\n", "1;2;0\n1;\"2;0"}) {
    ExpectError(text, absl::StatusCode::kDataLoss,
                "line 2, column 1: expected a closing quote, got the end of the line (a field must "
                "not hold a line break)");
  }
  ExpectError("1;\"2;0\n", absl::StatusCode::kDataLoss, "line 1, column 1: expected a closing");
}

}  // namespace
}  // namespace torchps
