#include "torchps/tools/base/format.h"

#include <gtest/gtest.h>

#include <limits>

namespace torchps {
namespace {

TEST(FormatTest, SeparatesThousands) {
  EXPECT_EQ(WithThousands(0), "0");
  EXPECT_EQ(WithThousands(999), "999");
  EXPECT_EQ(WithThousands(1000), "1,000");
  EXPECT_EQ(WithThousands(1234567), "1,234,567");
  EXPECT_EQ(WithThousands(-123456), "-123,456");
}

TEST(FormatTest, SecondsUseAFittingUnit) {
  EXPECT_EQ(FormatSeconds(0.12), "120 ms");
  EXPECT_EQ(FormatSeconds(4.256), "4.26 s");
  EXPECT_EQ(FormatSeconds(41.23), "41.2 s");
  EXPECT_EQ(FormatSeconds(185), "3 min 05 s");
  EXPECT_EQ(FormatSeconds(7625), "2 h 07 min");
}

TEST(FormatTest, SecondsRoundUpIntoTheRightUnit) {
  EXPECT_EQ(FormatSeconds(0.9996), "1.00 s");
  EXPECT_EQ(FormatSeconds(9.999), "10.0 s");
  EXPECT_EQ(FormatSeconds(99.99), "1 min 40 s");
  EXPECT_EQ(FormatSeconds(3599.7), "1 h 00 min");
}

TEST(FormatTest, BytesUseAFittingUnit) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(300.0 * 1024 * 1024), "300 MiB");
}

TEST(FormatTest, VeryLargeAndVerySmallLossesHaveAnExponent) {
  EXPECT_EQ(FormatLoss(0.40186), "0.4019");
  EXPECT_EQ(FormatLoss(12.5), "12.5000");
  EXPECT_EQ(FormatLoss(0), "0.0000");
  EXPECT_EQ(FormatLoss(1.3097e21), "1.31e+21");
  EXPECT_EQ(FormatLoss(2.5e-5), "2.5e-05");
  EXPECT_EQ(FormatLoss(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(FormatLoss(std::numeric_limits<double>::infinity()), "inf");
}

TEST(FormatTest, TheWidthOfATextIsItsNumberOfCharacters) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("▇▇"), 2);
}

TEST(FormatTest, UsesSingularForOne) {
  EXPECT_EQ(Count(1, "worker"), "1 worker");
  EXPECT_EQ(Count(3000, "worker"), "3,000 workers");
}

TEST(FormatTest, ShellReadsBackQuotedText) {
  EXPECT_EQ(ShellQuoted("--listen=127.0.0.1:0"), "--listen=127.0.0.1:0");
  EXPECT_EQ(ShellQuoted("two words"), "'two words'");
  EXPECT_EQ(ShellQuoted("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuoted("$(boom)"), "'$(boom)'");
  EXPECT_EQ(ShellQuoted(""), "''");
}

TEST(TextTableTest, ColumnsFitTheWidestCell) {
  TextTable table({">slot", "state", ">steps"});
  table.AddRow({"0", "training", "7"});
  table.AddRow({"1", "über", "1,234,567"});
  EXPECT_EQ(table.Format(),
            "slot  state         steps\n"
            "   0  training          7\n"
            "   1  über      1,234,567\n");
}

TEST(TextTableTest, RemovesControlCharactersFromCells) {
  TextTable table({">slot", "host"});
  table.AddRow({"0", "a\x1b[2J\nserver 0: all is well"});
  EXPECT_EQ(table.Format(),
            "slot  host\n"
            "   0  a?[2J?server 0: all is well\n");
}

TEST(TextTableTest, ShowsMissingCellsAsDashes) {
  TextTable table({">server", "address", ">blocks"});
  table.AddRow({"0", "a:1", "12"});
  table.AddRow({"1", "b:1"});
  EXPECT_EQ(table.Format(),
            "server  address  blocks\n"
            "     0  a:1          12\n"
            "     1  b:1           -\n");
}

TEST(TextTableTest, OmitsAnEmptyColumnWithoutTitle) {
  TextTable table({"a", "", "b"});
  table.AddRow({"1", "", "2"});
  EXPECT_EQ(table.Format(), "a  b\n1  2\n");
}

}  // namespace
}  // namespace torchps
