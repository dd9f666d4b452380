#include "torchps/tools/runs/compare_command.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/job/job_difference.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/tools/run_folder/run_directory.h"
#include "torchps/tools/run_folder/run_list.h"
#include "torchps/tools/runs/kept_run.h"

namespace torchps {
namespace {

constexpr char kUnknown[] = "-";

// Either of the compared runs. A running or failed run may lack a report.
struct Side {
  ListedRun run;
  JobSpec job;
  std::optional<Report> report;
};

absl::StatusOr<Side> ReadSide(const std::string& name) {
  absl::StatusOr<ListedRun> run = FindRun(name);
  if (!run.ok()) return run.status();
  absl::StatusOr<JobSpec> job = ReadKeptJob(run->dir);
  if (!job.ok()) return job.status();
  const absl::StatusOr<Report> report = ReadReport(*run);
  if (!report.ok() && !absl::IsNotFound(report.status())) return report.status();
  Side side{*std::move(run), *std::move(job), std::nullopt};
  if (report.ok()) side.report = *report;
  return side;
}

std::string ResultsTable(const Side& a, const Side& b) {
  TextTable table({"", "A", "B"});
  const auto add = [&](const std::string& title, const auto& text_of) {
    table.AddRow({title, text_of(a), text_of(b)});
  };
  const auto add_of_report = [&](const std::string& title, const auto& text_of) {
    add(title, [&](const Side& side) {
      return side.report.has_value() ? text_of(*side.report) : std::string(kUnknown);
    });
  };
  const absl::Time now = absl::Now();
  add("run", [](const Side& side) { return side.run.name; });
  add("began", [](const Side& side) { return BeganText(side.run); });
  add("took", [now](const Side& side) {
    return FormatSeconds(absl::ToDoubleSeconds(GetTime(side.run, now)));
  });
  add("result", [](const Side& side) { return OutcomeText(side.run); });
  add_of_report("best", [](const Report& report) {
    const Report::Result& result = report.result();
    if (result.best_epoch() == 0) return std::string(kUnknown);
    return absl::StrCat(ShortResultText(result.best_metrics(), result.best_loss()), ", epoch ",
                        result.best_epoch());
  });
  add_of_report("trained for",
                [](const Report& report) { return FormatSeconds(report.wall_seconds()); });
  add_of_report("samples/s", [](const Report& report) {
    return WithThousands(std::llround(report.samples_per_second()));
  });
  add_of_report("workers, servers", [](const Report& report) {
    return absl::StrCat(report.slots_size(), ", ", report.servers_size());
  });
  return table.Format();
}

std::string JobTable(const Side& a, const Side& b) {
  const std::vector<JobDifference> differences = AllJobDifferences(a.job, b.job);
  if (differences.empty()) return "the jobs are the same\n";
  TextTable table({"job field", "A", "B"});
  for (const JobDifference& each : differences) table.AddRow({each.path, each.mine, each.theirs});
  return table.Format();
}

// Test loss and metrics by epoch.
using Curves = std::map<int, std::map<std::string, std::string>>;

Curves GetCurves(const Side& side) {
  Curves curves;
  if (!side.report.has_value()) return curves;
  for (const Report::Epoch& epoch : side.report->epochs()) {
    if (!epoch.has_test()) continue;
    std::map<std::string, std::string>& values = curves[epoch.accounting().epoch()];
    values["loss"] = FormatLoss(epoch.test().loss());
    for (const MetricValue& metric : epoch.test().metrics()) {
      values[metric.name()] = MetricText(metric);
    }
  }
  return curves;
}

// Returns the run's first metric, and the loss.
std::vector<std::string> ShownNames(const Side& side) {
  std::vector<std::string> names;
  if (side.report.has_value() && !side.report->result().metrics().empty()) {
    names.push_back(side.report->result().metrics(0).name());
  }
  names.push_back("loss");
  return names;
}

std::string CurveTable(const Side& a, const Side& b) {
  const Curves curves[] = {GetCurves(a), GetCurves(b)};
  const std::vector<std::string> names = ShownNames(a.report.has_value() ? a : b);
  std::vector<std::string> titles = {">epoch"};
  for (const std::string& name : names) {
    for (const char* side : {"A", "B"}) titles.push_back(absl::StrCat(">test ", name, " ", side));
  }
  std::set<int> epochs;
  for (const Curves& of_side : curves) {
    for (const auto& [epoch, values] : of_side) epochs.insert(epoch);
  }
  if (epochs.empty()) return "there is no evaluation of either run\n";
  TextTable table(titles);
  for (const int epoch : epochs) {
    std::vector<std::string> row = {absl::StrCat(epoch)};
    for (const std::string& name : names) {
      for (const Curves& of_side : curves) {
        const auto values = of_side.find(epoch);
        const bool known = values != of_side.end() && values->second.count(name) > 0;
        row.push_back(known ? values->second.at(name) : kUnknown);
      }
    }
    table.AddRow(row);
  }
  return table.Format();
}

}  // namespace

std::vector<FlagSpec> CompareFlags() {
  return {{"run", "RUN", "A run: its name in runs/, or its folder. Give two.", true}};
}

int CompareCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const std::vector<std::string> names = flags.All("run");
  if (names.size() != 2) {
    error << "psctl: 'psctl compare' needs two runs, but got " << names.size()
          << "; 'psctl runs' lists them" << std::endl;
    return static_cast<int>(ExitCode::kUsage);
  }
  const absl::StatusOr<Side> a = ReadSide(names[0]);
  const absl::StatusOr<Side> b = ReadSide(names[1]);
  for (const absl::Status& status : {a.status(), b.status()}) {
    if (status.ok()) continue;
    error << "psctl: " << status.message() << std::endl;
    return static_cast<int>(ExitCodeFor(status));
  }
  out << ResultsTable(*a, *b) << "\n"
      << JobTable(*a, *b) << "\n"
      << CurveTable(*a, *b) << std::flush;
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace torchps
