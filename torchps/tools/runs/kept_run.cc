#include "torchps/tools/runs/kept_run.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "torchps/tools/report/report_command.h"

namespace torchps {
namespace {

std::string OneLine(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\n  ", "; "}, {"\n", "; "}});
}

// Describes the state and the reason of a run that did not finish.
std::string FailureText(const ListedRun& run, const std::string& state) {
  const RunRecord& record = run.record;
  if (state == "killed") return "killed: psctl ended without recording an outcome";
  if (!record.reason.empty()) return absl::StrCat(state, ": ", record.reason);
  return absl::StrCat(state, ": exit code ", record.exit_code.value_or(0));
}

absl::Status NoReport(const ListedRun& run) {
  const std::string state = ReadState(run);
  std::string why = absl::StrCat(run.name, " has no report: ");
  if (state == "running") {
    absl::StrAppend(&why, "it is running; 'psctl status --run=", run.name, "' shows its progress");
  } else if (state == "finished") {
    absl::StrAppend(&why, "its file report.json was removed");
  } else {
    absl::StrAppend(&why, FailureText(run, state), "\nlogs: ", run.dir, "/logs");
  }
  return absl::NotFoundError(why);
}

}  // namespace

std::string ReadState(const ListedRun& run) {
  const RunRecord& record = run.record;
  if (IsRunning(run.dir)) return "running";
  if (record.outcome.has_value()) return OutcomeName(*record.outcome);
  if (!record.exit_code.has_value()) return "killed";
  return *record.exit_code == 0 ? "finished" : "failed";
}

std::string OutcomeText(const ListedRun& run) {
  const std::string state = ReadState(run);
  if (state == "running") return state;
  if (state != "finished") return OneLine(FailureText(run, state));
  const absl::StatusOr<Report> report = ReadReport(run);
  if (!report.ok() || !report->has_result()) return state;
  return ShortResultText(report->result().metrics(), report->result().loss());
}

std::string ShortResultText(const Metrics& metrics, double loss) {
  Metrics first;
  if (!metrics.empty()) *first.Add() = metrics.Get(0);
  return ResultText(first, loss);
}

absl::Duration GetTime(const ListedRun& run, absl::Time now) {
  const RunRecord& record = run.record;
  if (record.ended.has_value()) return *record.ended - record.began;
  return IsRunning(run.dir) ? now - record.began : absl::ZeroDuration();
}

std::string BeganText(const ListedRun& run) {
  if (run.record.began == absl::InfinitePast()) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", run.record.began, absl::LocalTimeZone());
}

absl::StatusOr<std::string> ReadReportText(const ListedRun& run) {
  for (const std::string& path : {run.record.report, absl::StrCat(run.dir, "/report.json")}) {
    std::ifstream file(path);
    if (!file) continue;
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return NoReport(run);
}

absl::StatusOr<Report> ReadReport(const ListedRun& run) {
  const absl::StatusOr<std::string> text = ReadReportText(run);
  if (!text.ok()) return text.status();
  absl::StatusOr<Report> report = ParseReportJson(*text);
  if (report.ok()) return report;
  return absl::DataLossError(
      absl::StrCat("the report of ", run.name, " cannot be read: ", report.status().message()));
}

}  // namespace torchps
