#include "torchps/tools/runs/runs_command.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/storage/run_folder.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/tools/run_folder/run_directory.h"
#include "torchps/tools/run_folder/run_list.h"
#include "torchps/tools/runs/kept_run.h"

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

namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

constexpr int kMaxDays = 100000;
constexpr int kMaxRuns = 1000000;
constexpr size_t kResultWidth = 60;

std::string Shortened(const std::string& text) {
  if (text.size() <= kResultWidth) return text;
  size_t end = kResultWidth - 3;
  // Does not cut a UTF-8 character.
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string GetTable(const std::vector<ListedRun>& runs, absl::Time now) {
  TextTable table({"run", "began", ">took", "result", ">size"});
  for (const ListedRun& run : runs) {
    const absl::Duration took = GetTime(run, now);
    table.AddRow({run.name, BeganText(run),
                  took > absl::ZeroDuration() ? FormatSeconds(absl::ToDoubleSeconds(took)) : "-",
                  Shortened(OutcomeText(run)),
                  FormatBytes(static_cast<double>(BytesOnDisk(run.dir)))});
  }
  return table.Format();
}

// Returns null if the run lacks a report or a result.
Json GetResult(const ListedRun& run) {
  const absl::StatusOr<std::string> text = ReadReportText(run);
  if (!text.ok()) return nullptr;
  const Json report = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  return report.is_object() && report.contains("result") ? report["result"] : Json();
}

Json TimeJson(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

std::string GetJson(const std::vector<ListedRun>& runs, absl::Time now) {
  Json list = Json::array();
  for (const ListedRun& run : runs) {
    const RunRecord& record = run.record;
    list.push_back({{"name", run.name},
                    {"folder", run.dir},
                    {"host", record.host},
                    {"began", TimeJson(record.began)},
                    {"ended", record.ended.has_value() ? TimeJson(*record.ended) : Json()},
                    {"seconds", absl::ToInt64Seconds(GetTime(run, now))},
                    {"state", ReadState(run)},
                    {"reason", record.reason},
                    {"exit_code", record.exit_code.has_value() ? Json(*record.exit_code) : Json()},
                    {"result", GetResult(run)},
                    {"bytes", BytesOnDisk(run.dir)}});
  }
  return list.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<PruneRequest> MakePruneRequest(const FlagValues& flags) {
  if (flags.Has("older_than") == flags.Has("keep")) {
    return absl::InvalidArgumentError(
        "'psctl runs --prune' needs either --older_than=DAYS or --keep=N");
  }
  if (flags.Has("json")) {
    return absl::InvalidArgumentError("'psctl runs' takes either --prune or --json");
  }
  PruneRequest request;
  const absl::StatusOr<int64_t> days = flags.Integer("older_than", 0, 0, kMaxDays);
  if (!days.ok()) return days.status();
  if (flags.Has("older_than")) request.older_than = absl::Hours(24) * *days;
  const absl::StatusOr<int64_t> keep = flags.Integer("keep", 0, 0, kMaxRuns);
  if (!keep.ok()) return keep.status();
  if (flags.Has("keep")) request.keep = static_cast<int>(*keep);
  request.sure = flags.Has("yes");
  request.has_terminal = isatty(STDIN_FILENO) == 1;
  return request;
}

// Returns the runs to delete. REQUIRES: `runs` is sorted, newest first.
std::vector<ListedRun> Candidates(const PruneRequest& request, absl::Time now,
                                  const std::vector<ListedRun>& runs) {
  std::vector<ListedRun> old;
  for (size_t i = request.keep.value_or(0); i < runs.size(); ++i) {
    const RunRecord& record = runs[i].record;
    const absl::Duration age = now - record.ended.value_or(record.began);
    if (request.older_than.has_value() && age <= *request.older_than) continue;
    if (!IsRunning(runs[i].dir)) old.push_back(runs[i]);
  }
  return old;
}

std::error_code DeleteAllBut(const std::vector<fs::path>& kept, const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!absl::c_linear_search(kept, entry.path())) fs::remove_all(entry.path(), error);
    if (error) break;
  }
  return error;
}

// Deletes the folder of a run, holding the lock so that another process does not start there.
absl::Status Delete(const ListedRun& run) {
  const absl::StatusOr<std::unique_ptr<FileLock>> lock = LockRunDirectory(run.dir);
  if (!lock.ok()) return lock.status();
  // Deletes run.json last, so that a partly deleted run is still listed and can be deleted again.
  const fs::path folder = run.dir;
  const fs::path state = StateDirectory(run.dir);
  const std::vector<fs::path> last = {folder / "run.json", state / "run.lock", state};
  std::error_code error = DeleteAllBut(last, folder);
  if (!error) error = DeleteAllBut(last, state);
  if (!error) fs::remove_all(folder, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot delete ", run.dir, ": ", error.message()));
}

}  // namespace

std::vector<FlagSpec> RunsFlags() {
  return {
      {"folder", "FOLDER", "The folder of the runs. Default: runs/."},
      {"json", "", "Writes the list as JSON."},
      {"prune", "", "Deletes old runs after a confirmation. Never deletes a running one."},
      {"older_than", "DAYS", "With --prune: the runs that ended more than DAYS days ago.", false, 0,
       "prune"},
      {"keep", "N", "With --prune: all runs but the newest N.", false, 0, "prune"},
      {"yes", "", "With --prune: deletes without a confirmation.", false, 0, "prune"},
  };
}

int RunsCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const std::string folder = flags.Get("folder", kRunsFolder);
  const absl::Time now = absl::Now();
  if (flags.Has("prune")) {
    absl::StatusOr<PruneRequest> request = MakePruneRequest(flags);
    if (!request.ok()) return Fail(request.status(), error);
    request->folder = folder;
    return PruneRuns(*request, now, std::cin, out, error);
  }
  const absl::StatusOr<std::vector<ListedRun>> runs = ListRuns(folder);
  if (!runs.ok()) return Fail(runs.status(), error);
  if (flags.Has("json")) {
    out << GetJson(*runs, now) << std::flush;
  } else if (runs->empty()) {
    out << "there is no run in " << folder << std::endl;
  } else {
    out << GetTable(*runs, now) << std::flush;
  }
  return static_cast<int>(ExitCode::kOk);
}

int PruneRuns(const PruneRequest& request, absl::Time now, std::istream& in, std::ostream& out,
              std::ostream& error) {
  const absl::StatusOr<std::vector<ListedRun>> runs = ListRuns(request.folder);
  if (!runs.ok()) return Fail(runs.status(), error);
  const std::vector<ListedRun> old = Candidates(request, now, *runs);
  if (old.empty()) {
    out << "there is no run to delete in " << request.folder << std::endl;
    return static_cast<int>(ExitCode::kOk);
  }
  int64_t bytes = 0;
  for (const ListedRun& run : old) bytes += BytesOnDisk(run.dir);
  const std::string what = absl::StrCat(Count(static_cast<int64_t>(old.size()), "run"), ", ",
                                        FormatBytes(static_cast<double>(bytes)));
  out << GetTable(old, now);
  if (!request.sure) {
    if (!request.has_terminal) {
      return Fail(absl::InvalidArgumentError(absl::StrCat(
                      "would delete ", what,
                      ", but there is no terminal to ask on; --yes deletes without asking")),
                  error);
    }
    out << "Delete " << what << "? [y/N] " << std::flush;
    std::string answer;
    std::getline(in, answer);
    if (answer != "y" && answer != "Y" && answer != "yes")
      return static_cast<int>(ExitCode::kFailed);
  }
  int code = static_cast<int>(ExitCode::kOk);
  for (const ListedRun& run : old) {
    if (const absl::Status deleted = Delete(run); !deleted.ok()) code = Fail(deleted, error);
  }
  if (code == static_cast<int>(ExitCode::kOk)) out << "deleted " << what << std::endl;
  return code;
}

}  // namespace torchps
