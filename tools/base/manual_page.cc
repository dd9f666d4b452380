#include "tools/base/manual_page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace torchps {
namespace {

// Escapes text for troff, which treats '.' or "'" at the start of a line as a request.
std::string Escaped(absl::string_view text) {
  return absl::StrCat("\\&", absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}}));
}

std::string Paragraph(const FlagSpec& flag) {
  const std::string letter =
      flag.letter == 0 ? "" : absl::StrCat("\\-", std::string(1, flag.letter), ", ");
  const std::string value =
      flag.placeholder.empty() ? "" : absl::StrCat("=\\fI", Escaped(flag.placeholder), "\\fP");
  return absl::StrCat(".TP\n\\fB", letter, "\\-\\-", flag.name, "\\fP", value,
                      flag.repeatable ? " (may be repeated)" : "", "\n", Escaped(flag.help), "\n");
}

}  // namespace

std::string ManualPage(const std::vector<CommandSpec>& commands, absl::string_view release) {
  std::string text =
      absl::StrCat(".TH PSCTL 1 \"\" \"", release, "\" \"User Commands\"\n.SH NAME\n",
                   "psctl \\- runs and watches torchps clusters\n.SH SYNOPSIS\n",
                   ".B psctl\n.I COMMAND\n[\\fB\\-\\-FLAG\\fP=\\fIVALUE\\fP]...\n.SH COMMANDS\n");
  for (const CommandSpec& command : commands) {
    absl::StrAppend(&text, ".SS psctl ", command.name, "\n", Escaped(command.summary), "\n");
    if (!command.bare.empty()) {
      absl::StrAppend(&text, "A word without a flag is the value of \\fB\\-\\-", command.bare,
                      "\\fP.\n");
    }
    absl::StrAppend(&text, ".PP\n.RS\n", Escaped(command.example), "\n.RE\n");
    for (const FlagSpec& flag : command.flags) absl::StrAppend(&text, Paragraph(flag));
  }
  return text;
}

}  // namespace torchps
