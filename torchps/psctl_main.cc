// psctl: the operator's command-line tool. Each subcommand is in a separate pair of files.

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grpcpp/version_info.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/process/process_limits.h"
#include "torchps/common/process/version.h"
#include "torchps/common/text.h"
#include "torchps/tools/base/completion.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/certs_command.h"
#include "torchps/tools/doctor/doctor_command.h"
#include "torchps/tools/drill/drill_command.h"
#include "torchps/tools/export_command.h"
#include "torchps/tools/job_commands.h"
#include "torchps/tools/model_command.h"
#include "torchps/tools/report/report_command.h"
#include "torchps/tools/report/status_command.h"
#include "torchps/tools/run/run_command.h"
#include "torchps/tools/run_plan/run_flags.h"
#include "torchps/tools/runs/compare_command.h"
#include "torchps/tools/runs/runs_command.h"

namespace torchps {
namespace {

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  std::vector<FlagSpec> (*flags)();
  int (*run)(const FlagValues& flags, std::ostream& out, std::ostream& error);
  const char* bare = "";  // the flag that a word without a flag sets
  std::string (*suggest)(absl::string_view flag) = nullptr;  // see FlagTable
};

std::vector<FlagSpec> CompletionFlags() {
  return {{"shell", "SHELL", "bash, zsh or fish. Required.", /*repeatable=*/false, /*letter=*/0,
           /*needs=*/"", CompletionShells()}};
}

std::vector<FlagSpec> ManFlags() { return {}; }

int CompletionCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);
int ManCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

constexpr Command kCommands[] = {
    {"run", "Runs a whole job: starts servers and workers, shows progress, reports, stops them.",
     "psctl run deploy/jobs/mlp_digits.textproto --servers=2 --workers=3", &RunFlags, &RunCommand,
     "job", &RunFlagFor},
    {"doctor", "Checks the requirements of a run before it starts.",
     "psctl doctor --job=deploy/jobs/mlp_digits.textproto --dir=/data/run1 "
     "--servers=alpha:7000,beta:7000",
     &DoctorFlags, &DoctorCommand, "job"},
    {"drill", "Runs a job, kills and freezes its parts, and reports how it recovered.",
     "psctl drill --job=deploy/jobs/mlp_digits.textproto --servers=2 --workers=3 "
     "--kill=server:every=5s --freeze=worker:every=8s --seconds=60",
     &DrillFlags, &DrillCommand, "job", &RunFlagFor},
    {"status", "Shows the state of a running cluster.",
     "psctl status --servers=127.0.0.1:4711,127.0.0.1:4712 --watch", &StatusFlags, &StatusCommand,
     "run"},
    {"report", "Reports on a cluster's job, now or when it has ended.",
     "psctl report --servers=127.0.0.1:4711,127.0.0.1:4712 --wait --report=report.json",
     &ReportFlags, &ReportCommand, "run"},
    {"runs", "Lists the runs of a folder, or deletes old ones.", "psctl runs --prune --keep=10",
     &RunsFlags, &RunsCommand, "folder"},
    {"show", "Shows the report of a run that has ended.", "psctl show mnist-20261124-101500",
     &ShowFlags, &ShowCommand, "run"},
    {"compare", "Compares two runs: results, jobs, evaluations.",
     "psctl compare mnist-20261124-101500 mnist-20261124-113000", &CompareFlags, &CompareCommand,
     "run"},
    {"evaluate", "Measures a trained model, or a running job, on the job's test set.",
     "psctl evaluate --model=runs/mnist-20261124-101500", &EvaluateFlags, &EvaluateCommand, "data"},
    {"predict", "Writes a trained model's predictions for new data.",
     "psctl predict --model=runs/iris-20261124-101500 new.csv --out=answers.csv", &PredictFlags,
     &PredictCommand, "data"},
    {"generate", "Continues a text with a trained language model.",
     "psctl generate --model=runs/transformer_text-20261124-101500 --prompt='The river '",
     &GenerateFlags, &GenerateCommand, "prompt"},
    {"export", "Writes the model of a checkpoint to a file that Python can read.",
     "psctl export --dir=checkpoints --out=model.safetensors", &ExportFlags, &ExportCommand},
    {"checkpoint", "Takes a checkpoint of a running job.",
     "psctl checkpoint --servers=127.0.0.1:4711,127.0.0.1:4712", &CheckpointFlags,
     &CheckpointCommand, "run"},
    {"stop", "Stops the servers of a cluster.",
     "psctl stop --servers=127.0.0.1:4711,127.0.0.1:4712", &StopFlags, &StopCommand, "run"},
    {"certs", "Makes or renews certificates for servers, workers and operators.",
     "psctl certs --dir=certs --job=mnist --hosts=alpha,beta", &CertsFlags, &CertsCommand},
    {"completion", "Prints a script that completes commands and flags in a shell.",
     "source <(psctl completion bash)", &CompletionFlags, &CompletionCommand, "shell"},
    {"man", "Prints the manual page of psctl.", "psctl man | man -l -", &ManFlags, &ManCommand},
};

std::vector<CommandSpec> CommandSpecs() {
  std::vector<CommandSpec> specs;
  for (const Command& command : kCommands) {
    specs.push_back(
        {command.name, command.summary, command.example, command.flags(), command.bare});
  }
  return specs;
}

int CompletionCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const std::string shell = flags.Get("shell");
  const std::vector<std::string> shells = CompletionShells();
  if (std::find(shells.begin(), shells.end(), shell) == shells.end()) {
    error << "psctl: 'psctl completion' does not support '" << shell << "'; expected one of "
          << absl::StrJoin(shells, ", ") << std::endl;
    return static_cast<int>(ExitCode::kUsage);
  }
  out << CompletionScript(shell, CommandSpecs());
  return static_cast<int>(ExitCode::kOk);
}

int ManCommand(const FlagValues& /*flags*/, std::ostream& out, std::ostream& /*error*/) {
  out << ManualPage(CommandSpecs(), ReleaseLine());
  return static_cast<int>(ExitCode::kOk);
}

const Command* FindCommand(const std::string& name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

int UnknownCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.push_back(command.name);
  }
  const std::string similar = ClosestName(name, names);
  std::cerr << "psctl: there is no command '" << name << "'"
            << (similar.empty() ? "; 'psctl help' lists them"
                                : absl::StrCat("; did you mean '", similar, "'?"))
            << std::endl;
  return static_cast<int>(ExitCode::kUsage);
}

int Help(std::ostream& out) {
  out << "psctl runs and watches torchps clusters.\n\n";
  for (const Command& command : kCommands) {
    out << "  psctl " << command.name << std::string(12 - std::string(command.name).size(), ' ')
        << command.summary << "\n";
  }
  out << "\n'psctl help COMMAND' lists a command's flags; 'psctl version' prints the version.\n";
  return static_cast<int>(ExitCode::kOk);
}

int HelpOn(const Command& command) {
  std::cout << command.summary << "\n\n  " << command.example << "\n\n";
  if (*command.bare != '\0') {
    std::cout << "  A word without a flag is the value of --" << command.bare << ".\n\n";
  }
  std::cout << FlagTable("", command.flags()).Help();
  return static_cast<int>(ExitCode::kOk);
}

bool AsksForHelp(const std::string& word) {
  return word == "help" || word == "--help" || word == "-h";
}

int Main(const std::vector<std::string>& words) {
  if (words.empty()) {
    Help(std::cerr);
    return static_cast<int>(ExitCode::kUsage);
  }
  if (words[0] == "--version" || words[0] == "version") {
    std::cout << ReleaseLine() << "; gRPC " GRPC_CPP_VERSION_STRING << std::endl;
    return static_cast<int>(ExitCode::kOk);
  }
  const bool help_first = AsksForHelp(words[0]);
  if (help_first && words.size() == 1) return Help(std::cout);
  const std::string& name = help_first ? words[1] : words[0];
  const Command* const command = FindCommand(name);
  if (command == nullptr) return UnknownCommand(name);
  const bool help_later = std::find(words.begin(), words.end(), "--help") != words.end();
  if (help_first || help_later || (words.size() == 2 && AsksForHelp(words[1]))) {
    return HelpOn(*command);
  }

  const FlagTable table(absl::StrCat("psctl ", name), command->flags(), command->bare,
                        command->suggest);
  const absl::StatusOr<FlagValues> flags = table.Parse({words.begin() + 1, words.end()});
  if (!flags.ok()) {
    const absl::string_view message = flags.status().message();
    std::cerr << "psctl: " << message << (absl::EndsWith(message, "?") ? " " : "; ")
              << "'psctl help " << name << "' lists its flags" << std::endl;
    return static_cast<int>(ExitCode::kUsage);
  }
  return command->run(*flags, std::cout, std::cerr);
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  // Makes writes to a closed pipe (`| head`) fail with an error, so that a run can stop the
  // processes it started.
  signal(SIGPIPE, SIG_IGN);
  // If the parent process ignores SIGCHLD, the exit codes of psctl's children would be lost.
  signal(SIGCHLD, SIG_DFL);
  // psctl's own messages report failed connections. GRPC_VERBOSITY=ERROR shows gRPC's log.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  torchps::RaiseOpenFileLimit();
  return torchps::Main({argv + 1, argv + argc});
}
