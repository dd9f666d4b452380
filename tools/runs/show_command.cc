#include "tools/runs/show_command.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/process/command_line.h"
#include "tools/base/format.h"
#include "tools/report/report_text.h"
#include "tools/run_folder/run_directory.h"
#include "tools/run_folder/run_list.h"
#include "tools/runs/kept_run.h"

namespace torchps {
namespace {

std::string Headline(const ListedRun& run) {
  const RunRecord& record = run.record;
  const auto quoted = [](std::string* text, const std::string& word) {
    absl::StrAppend(text, ShellQuoted(word));
  };
  const absl::Duration took = GetTime(run, absl::Now());
  return absl::StrCat(run.dir, ": began ", BeganText(run), " on ", record.host,
                      took > absl::ZeroDuration()
                          ? absl::StrCat(", took ", FormatSeconds(absl::ToDoubleSeconds(took)))
                          : "",
                      "\ncommand: ", absl::StrJoin(record.command, " ", quoted), "\n\n");
}

int Fail(const absl::Status& status, std::ostream& error) {
  error << "psctl: " << status.message() << std::endl;
  return static_cast<int>(ExitCodeFor(status));
}

}  // namespace

std::vector<FlagSpec> ShowFlags() {
  return {
      {"run", "RUN", "The run: its name in runs/, or its folder. Default: the newest in runs/."},
      {"json", "", "Writes report.json instead (docs/operate.md)."},
  };
}

int ShowCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const absl::StatusOr<ListedRun> run = flags.Has("run") ? FindRun(flags.Get("run")) : NewestRun();
  if (!run.ok()) return Fail(run.status(), error);
  if (flags.Has("json")) {
    const absl::StatusOr<std::string> text = ReadReportText(*run);
    if (!text.ok()) return Fail(text.status(), error);
    out << *text << std::flush;
    return static_cast<int>(ExitCode::kOk);
  }
  out << Headline(*run) << std::flush;
  const absl::StatusOr<Report> report = ReadReport(*run);
  if (!report.ok()) return Fail(report.status(), error);
  out << ReportText(*report);
  if (const std::string state = ReadState(*run); state != "finished") {
    out << "\n" << OutcomeText(*run) << "\n";
  }
  if (const std::string model = DescribeModel(run->dir, run->record.began); !model.empty()) {
    out << "\n" << model;
  }
  out.flush();
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace torchps
