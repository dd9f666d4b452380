#include "torchps/tools/base/completion.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

std::vector<CommandSpec> Commands() {
  return {{"run",
           "Runs a job.",
           "psctl run digits",
           {{"job", "FILE", "The job's [file]. Required.", false, 0, "", {"digits"}},
            {"pause", "SLOT:FOR", "Pauses.", true},
            {"insecure", "", ".NET, or \\ not."}},
           "job"}};
}

TEST(CompletionTest, ZshListsFlagsWithHelpAndValues) {
  const std::string script = CompletionScript("zsh", Commands());
  EXPECT_THAT(script, HasSubstr(R"('--job=[The job'\''s \[file\].]:FILE:_files')"));
  EXPECT_THAT(script, HasSubstr(R"('*--pause=[Pauses.]:SLOT\:FOR:')"));
  EXPECT_THAT(script, HasSubstr(R"('--insecure[.NET, or \\ not.]')"));
}

TEST(CompletionTest, FishListsFlagsWithHelpAndValues) {
  const std::string script = CompletionScript("fish", Commands());
  EXPECT_THAT(script,
              HasSubstr("complete -c psctl -n '__fish_seen_subcommand_from run' -l job -r -F "
                        "-a 'digits' -d 'The job'\\''s [file].'\n"));
  EXPECT_THAT(script, HasSubstr(" -l insecure -d "));
}

TEST(ManualPageTest, EscapesTroffRequests) {
  const std::string page = ManualPage(Commands(), "torchps 1.2.3");
  EXPECT_THAT(page, HasSubstr(".TH PSCTL 1 \"\" \"torchps 1.2.3\""));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-insecure\\fP\n\\&.NET, or \\e not.\n"));
}

}  // namespace
}  // namespace torchps
