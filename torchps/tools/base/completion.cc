#include "torchps/tools/base/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

// Bash splits a command line at each '=', so the script looks for the flag one or two words back.
// It finds the flags of ps_server and ps_worker in their --help output.
constexpr char kBash[] = R"sh(# Completion of torchps for bash, made by `psctl completion bash`.

_psctl_values() {
  case "$command $flag" in
@VALUES@  esac
}

_psctl_flags() {
  case "$command" in
@FLAGS@    "" | help) words="@COMMANDS@ help version" ;;
  esac
}

_psctl() {
  local command="${COMP_WORDS[1]}" current="${COMP_WORDS[COMP_CWORD]}"
  local flag="${COMP_WORDS[COMP_CWORD - 1]}" words="" files=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -lt 2 ]; then
    command="" flag=""
  elif [ "$current" = = ]; then
    current=""
  elif [ "$flag" = = ]; then
    flag="${COMP_WORDS[COMP_CWORD - 2]}"
  elif [[ "$flag" != --* && "$current" != -* ]]; then
    flag=bare
  fi
  _psctl_values
  [ -n "$words$files" ] || _psctl_flags
  if [ -n "$files" ]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W "$words" "$files" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    [[ "${COMPREPLY[*]}" != *= ]] || compopt -o nospace 2>/dev/null
  fi
}
complete -F _psctl psctl

_torchps_program() {
  local current="${COMP_WORDS[COMP_CWORD]}" flags
  if [ "$current" = = ] || [ "${COMP_WORDS[COMP_CWORD - 1]}" = = ]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "${current#=}")
  else
    compopt -o nospace 2>/dev/null
    flags="$("$1" --help 2>/dev/null | sed -n 's/^ *--\([a-z_]*\) .*/--\1=/p')"
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  fi
}
complete -F _torchps_program ps_server ps_worker
)sh";

constexpr char kZsh[] = R"sh(#compdef psctl ps_server ps_worker
# Completion of torchps for zsh, made by `psctl completion zsh`.

_psctl() {
  if [[ $service != psctl ]]; then
    _arguments '*:file:_files' --
    return
  fi
  if (( CURRENT == 2 )); then
    local -a commands=(
@COMMANDS@      'help:Lists the commands, or the flags of one.'
      'version:Prints the version.'
    )
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
@CASES@    help) _values command @NAMES@ ;;
  esac
}

if [[ $funcstack[1] == _psctl ]]; then
  _psctl "$@"
else
  compdef _psctl psctl ps_server ps_worker
fi
)sh";

constexpr char kFishHead[] = R"sh(# Completion of torchps for fish, made by `psctl completion fish`.
complete -c psctl -f
complete -c psctl -n __fish_use_subcommand -a help -d 'Lists the commands, or the flags of one.'
complete -c psctl -n __fish_use_subcommand -a version -d 'Prints the version.'
complete -c psctl -n '__fish_seen_subcommand_from help' -a '@NAMES@'
for program in ps_server ps_worker
    complete -c $program -a "($program --help 2>/dev/null | string replace -rf '^ +--([a-z_]+) .*' -- '--\$1=')"
end
)sh";

// File completion for a flag's value.
enum class Files { kNone, kDirectories, kAll };

Files GetFiles(const FlagSpec& flag) {
  if (flag.placeholder == "DIR") return Files::kDirectories;
  return flag.placeholder == "FILE" || flag.placeholder == "PATH" ? Files::kAll : Files::kNone;
}

bool HasValues(const FlagSpec& flag) {
  return !flag.choices.empty() || GetFiles(flag) != Files::kNone;
}

// Returns the text that the user types for the flag: "--epochs=", or "--insecure" for a switch.
std::string Typed(const FlagSpec& flag) {
  return absl::StrCat("--", flag.name, flag.placeholder.empty() ? "" : "=");
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Returns the first sentence.
absl::string_view Brief(absl::string_view help) {
  const size_t end = help.find(". ");
  return end == absl::string_view::npos ? help : help.substr(0, end + 1);
}

std::string GetNames(const std::vector<CommandSpec>& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const CommandSpec& command) {
    absl::StrAppend(out, command.name);
  });
}

std::string BashScript(const std::vector<CommandSpec>& commands) {
  std::string values, flags;
  for (const CommandSpec& command : commands) {
    std::vector<std::string> typed;
    for (const FlagSpec& flag : command.flags) {
      typed.push_back(Typed(flag));
      if (!HasValues(flag)) continue;
      const Files files = GetFiles(flag);
      const std::string bare =
          flag.name == command.bare ? absl::StrCat(" | \"", command.name, " bare\"") : "";
      absl::StrAppend(&values, "    \"", command.name, " --", flag.name, "\"", bare, ") words=\"",
                      absl::StrJoin(flag.choices, " "), "\" files=\"",
                      files == Files::kAll           ? "-f"
                      : files == Files::kDirectories ? "-d"
                                                     : "",
                      "\" ;;\n");
    }
    absl::StrAppend(&flags, "    ", command.name, ") words=\"", absl::StrJoin(typed, " "),
                    " --help\" ;;\n");
  }
  return absl::StrReplaceAll(
      kBash, {{"@VALUES@", values}, {"@FLAGS@", flags}, {"@COMMANDS@", GetNames(commands)}});
}

// Returns the flag in the format of zsh's _arguments: '--epochs=[help]:N:'.
std::string ZshArgument(const FlagSpec& flag, const std::string& place) {
  const std::string help =
      absl::StrReplaceAll(Brief(flag.help), {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}});
  std::string action;
  if (!flag.choices.empty()) action = absl::StrCat("(", absl::StrJoin(flag.choices, " "), ")");
  if (GetFiles(flag) == Files::kAll) action = "_files";
  if (GetFiles(flag) == Files::kDirectories) action = "_files -/";
  const std::string value = absl::StrReplaceAll(flag.placeholder, {{":", "\\:"}});
  return Quoted(
      absl::StrCat(place, place == "*" ? "" : absl::StrCat("[", help, "]"),
                   flag.placeholder.empty() ? "" : absl::StrCat(":", value, ":", action)));
}

std::string ZshScript(const std::vector<CommandSpec>& commands) {
  std::string names, cases;
  for (const CommandSpec& command : commands) {
    absl::StrAppend(&names, "      ", Quoted(absl::StrCat(command.name, ":", command.summary)),
                    "\n");
    absl::StrAppend(&cases, "    ", command.name, ")\n      _arguments");
    for (const FlagSpec& flag : command.flags) {
      const std::string repeat = flag.repeatable ? "*" : "";
      absl::StrAppend(&cases, " \\\n        ",
                      ZshArgument(flag, absl::StrCat(repeat, Typed(flag))));
      if (flag.name == command.bare) {
        absl::StrAppend(&cases, " \\\n        ", ZshArgument(flag, "*"));
      }
    }
    absl::StrAppend(&cases, "\n      ;;\n");
  }
  return absl::StrReplaceAll(
      kZsh, {{"@COMMANDS@", names}, {"@CASES@", cases}, {"@NAMES@", GetNames(commands)}});
}

std::string FishScript(const std::vector<CommandSpec>& commands) {
  std::string text = absl::StrReplaceAll(kFishHead, {{"@NAMES@", GetNames(commands)}});
  for (const CommandSpec& command : commands) {
    absl::StrAppend(&text, "complete -c psctl -n __fish_use_subcommand -a ", command.name, " -d ",
                    Quoted(command.summary), "\n");
    for (const FlagSpec& flag : command.flags) {
      const std::string begin =
          absl::StrCat("complete -c psctl -n '__fish_seen_subcommand_from ", command.name, "'");
      const std::string choices =
          flag.choices.empty() ? ""
                               : absl::StrCat(" -a ", Quoted(absl::StrJoin(flag.choices, " ")));
      const std::string files = GetFiles(flag) == Files::kNone ? "" : " -F";
      absl::StrAppend(&text, begin, " -l ", flag.name, flag.placeholder.empty() ? "" : " -r", files,
                      choices, " -d ", Quoted(Brief(flag.help)), "\n");
      if (flag.name == command.bare) absl::StrAppend(&text, begin, files, choices, "\n");
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> CompletionShells() { return {"bash", "zsh", "fish"}; }

std::string CompletionScript(absl::string_view shell, const std::vector<CommandSpec>& commands) {
  if (shell == "bash") return BashScript(commands);
  if (shell == "zsh") return ZshScript(commands);
  TPS_CHECK(shell == "fish", "there is no script for this shell");
  return FishScript(commands);
}

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
