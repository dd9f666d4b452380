#include "torchps/tools/base/flag_table.h"

#include <gtest/gtest.h>

namespace torchps {
namespace {

FlagTable Table(const std::string& bare = "") {
  return FlagTable("psctl run",
                   {{"job", "FILE", "The job.", false},
                    {"set", "PATH=VALUE", "One field.", true},
                    {"workers", "N", "How many.", false, 'w'},
                    {"insecure", "", "A switch.", false}},
                   bare);
}

TEST(FlagTableTest, AcceptsBothFormsOfAValue) {
  const auto flags = Table().Parse({"--job=a.textproto", "--workers", "3", "--insecure"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->Get("job"), "a.textproto");
  EXPECT_EQ(*flags->Integer("workers", 1, 1, 10), 3);
  EXPECT_TRUE(flags->Has("insecure"));
}

TEST(FlagTableTest, AShortFlagEqualsItsLongFlag) {
  for (const std::vector<std::string>& typed :
       {std::vector<std::string>{"-w", "3"}, {"-w=3"}, {"--workers=5", "-w", "3"}}) {
    const auto flags = Table().Parse(typed);
    ASSERT_TRUE(flags.ok()) << flags.status();
    EXPECT_EQ(flags->All("workers"), std::vector<std::string>{"3"});
  }
}

TEST(FlagTableTest, RepeatableFlagKeepsOrderAndEqualsSigns) {
  const auto flags = Table().Parse({"--set=b=2", "--set", "a=1"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->All("set"), (std::vector<std::string>{"b=2", "a=1"}));
}

TEST(FlagTableTest, LastValueOfASingleFlagWins) {
  const auto flags = Table().Parse({"--workers=3", "--workers=5"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->All("workers"), std::vector<std::string>{"5"});
}

TEST(FlagTableTest, MissingFlagUsesTheFallback) {
  const auto flags = Table().Parse({});
  ASSERT_TRUE(flags.ok());
  EXPECT_FALSE(flags->Has("job"));
  EXPECT_EQ(flags->Get("job", "x"), "x");
  EXPECT_EQ(*flags->Integer("workers", 7, 1, 10), 7);
  EXPECT_TRUE(flags->All("set").empty());
}

struct BadLine {
  std::vector<std::string> arguments;
  const char* message;
};

TEST(FlagTableTest, AWordWithoutAFlagSetsThePositionalFlag) {
  const FlagTable table = Table("job");
  const auto flags = table.Parse({"job.textproto", "--workers=2"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->Get("job"), "job.textproto");
  EXPECT_EQ(flags->Get("workers"), "2");
  EXPECT_EQ(table.Parse({"a", "b"}).status().message(),
            "'psctl run' takes one --job, but got 'b' and 'a'");
}

TEST(FlagTableTest, SeveralWordsWithoutAFlagSetARepeatableFlag) {
  const auto flags = Table("set").Parse({"a", "--set=b", "c"});
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->All("set"), (std::vector<std::string>{"a", "b", "c"}));
}

TEST(FlagTableTest, ErrorNamesEachMistakeInASentence) {
  const BadLine kBad[] = {
      {{"--jobb=x"}, "'psctl run' has no flag --jobb; did you mean --job?"},
      {{"--frobnicate"}, "'psctl run' has no flag --frobnicate"},
      {{"job.textproto"}, "'psctl run' takes flags only, but got 'job.textproto'"},
      {{"-j"}, "'psctl run' takes flags only, but got '-j'"},
      {{"-w"}, "'psctl run' needs a value for --workers, as --workers=N"},
      {{"-"}, "'psctl run' takes flags only, but got '-'"},
      {{"--"}, "'psctl run' takes flags only, but got '--'"},
      {{"--job"}, "'psctl run' needs a value for --job, as --job=FILE"},
      {{"--job="}, "'psctl run' needs a value for --job, as --job=FILE"},
      {{"--job", "--insecure"}, "'psctl run' needs a value for --job, as --job=FILE"},
      {{"--insecure=yes"}, "'psctl run' takes --insecure without a value"},
  };
  for (const BadLine& bad : kBad) {
    const absl::Status status = Table().Parse(bad.arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), bad.message);
  }
}

TEST(FlagTableTest, RejectsAFlagWithoutItsRequiredFlag) {
  const FlagTable table("psctl report", {{"wait", "", "Waits."},
                                         {"patience", "TIME", "How long.", false, 0, "wait"}});
  EXPECT_EQ(table.Parse({"--patience=5s"}).status().message(),
            "'psctl report' uses --patience with --wait only; give both, or leave it out");
  EXPECT_TRUE(table.Parse({"--patience=5s", "--wait"}).ok());
  EXPECT_TRUE(table.Parse({"--wait"}).ok());
  EXPECT_TRUE(table.Parse({}).ok());
}

TEST(FlagTableTest, NumberOutOfRangeNamesTheRange) {
  for (const char* value : {"0", "11", "three", "1.5", "99999999999999999999"}) {
    const auto flags = Table().Parse({std::string("--workers=") + value});
    ASSERT_TRUE(flags.ok());
    EXPECT_EQ(flags->Integer("workers", 1, 1, 10).status().message(),
              std::string("--workers=") + value + ": expected a whole number from 1 to 10");
  }
}

TEST(FlagTableTest, HelpListsEachFlagAndForm) {
  EXPECT_EQ(Table().Help(),
            "  --job=FILE\n      The job.\n"
            "  --set=PATH=VALUE   (may be repeated)\n      One field.\n"
            "  -w, --workers=N\n      How many.\n"
            "  --insecure\n      A switch.\n");
}

}  // namespace
}  // namespace torchps
