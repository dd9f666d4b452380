#include "torchps/tools/report/report_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "torchps/common/process/command_line.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/report/report_checks.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

std::string DescribeConsistency(const ConsistencySpec& spec) {
  const int bound = spec.staleness_bound();
  if (HasRounds(spec)) {
    return spec.backup_workers() == 0
               ? "synchronous"
               : absl::StrCat("synchronous, ", Count(spec.backup_workers(), "backup worker"));
  }
  if (!AppliesEachPush(spec)) {
    return bound < 0 ? "asynchronous by whole batches, no staleness bound"
                     : absl::StrCat("asynchronous, staleness at most ", Count(bound, "update"));
  }
  std::string text = "asynchronous, each push alone, ";
  absl::StrAppend(&text, bound < 0 ? "no staleness bound"
                                   : absl::StrCat("at most ", Count(bound, "step"), " ahead"));
  switch (spec.lag().policy()) {
    case LagContract::WEIGH:
      absl::StrAppend(&text, ", weighed beyond lag ", spec.lag().free_lag());
      break;
    case LagContract::REJECT:
      absl::StrAppend(&text, ", rejected beyond lag ", spec.lag().max_lag());
      break;
    default:
      break;
  }
  return text;
}

std::string StateName(SlotAccounting::State state) {
  return absl::AsciiStrToLower(SlotAccounting::State_Name(state));
}

std::string PhaseName(JobStatus::Phase phase) {
  return absl::AsciiStrToLower(JobStatus::Phase_Name(phase));
}

std::string StateAndReason(const std::string& state, const std::string& reason) {
  return reason.empty() ? state : absl::StrCat(state, ": ", reason);
}

std::string DeviceText(const std::string& device, const Members& members) {
  if (members.size() <= 1) return device;
  return absl::StrCat(members.size(), members[0].own_process() ? " processes" : " devices");
}

std::string MemberText(const ReplicaMember& member) {
  const std::string part = member.stage() < 0
                               ? "replica"
                               : absl::StrCat("stage ", member.stage(), ", ",
                                              WithThousands(member.parameters()), " parameters");
  return absl::StrCat(part, ", ", FormatBytes(static_cast<double>(member.model_bytes())));
}

std::string VersionRange(int64_t min, int64_t max) {
  return min == max ? absl::StrCat(max) : absl::StrCat(min, "-", max);
}

std::string ResultText(const Metrics& metrics, double loss) {
  if (metrics.empty()) return absl::StrFormat("test loss %.4g", loss);
  return absl::StrCat("test ",
                      absl::StrJoin(metrics, ", ", [](std::string* out, const MetricValue& metric) {
                        absl::StrAppend(out, metric.name(), " ", MetricText(metric));
                      }));
}

std::string MetricText(const MetricValue& metric) {
  if (metric.name() == "accuracy") return FormatPercent(metric.value(), 2);
  return absl::StrFormat("%.4g", metric.value());
}

std::string NotFiniteText(uint64_t blocks, bool has_checkpoint) {
  if (blocks == 0) return "";
  return absl::StrCat(
      "the model is not finite: ", Count(static_cast<int64_t>(blocks), "block"), " ",
      blocks == 1 ? "holds" : "hold", " infinite or NaN values; ",
      has_checkpoint
          ? "to go back, stop the job, move the non-finite checkpoints away, and start the job "
            "with --resume (docs/operate.md)"
          : "restart the job with a smaller optimizer.learning_rate or with training.clip_norm",
      "\n");
}

std::string StoppedAndResumed(absl::string_view stopped, uint64_t resumed_checkpoint) {
  std::string text;
  if (!stopped.empty()) absl::StrAppend(&text, "stopped early: ", stopped, "\n");
  if (resumed_checkpoint > 0) {
    absl::StrAppend(&text, "resumed from checkpoint ", resumed_checkpoint, "\n");
  }
  return text;
}

std::string NoAnswerText(int server, absl::string_view address, const absl::Status& status) {
  const std::string name = absl::StrCat("server ", server, " at ", address);
  if (ExitCodeFor(status) == ExitCode::kRefused) return absl::StrCat(name, " ", status.message());
  if (status.code() != absl::StatusCode::kUnavailable) {
    return absl::StrCat(name, ": ", status.message());
  }
  return absl::StrCat(name, " cannot be reached: ", status.message(),
                      "; is it running, and is the address right?");
}

namespace {

std::string Headline(const Report& report) {
  std::string text = report.name();
  absl::StrAppend(&text, report.finished()     ? " finished"
                         : report.has_failed() ? " FAILED"
                                               : " has not finished");
  if (report.has_failed()) absl::StrAppend(&text, ": ", report.failed());
  if (report.has_result()) {
    const Report::Result& result = report.result();
    absl::StrAppend(&text, report.has_failed() ? "\n" : ": ",
                    ResultText(result.metrics(), result.loss()), " after ",
                    Count(result.epoch(), "epoch"));
    if (result.best_epoch() > 0 && result.best_epoch() != result.epoch()) {
      absl::StrAppend(&text, ", best after epoch ", result.best_epoch(), ": ",
                      ResultText(result.best_metrics(), result.best_loss()));
    }
  }
  absl::StrAppend(&text, "\n");
  if (report.has_epochs_without_best()) {
    absl::StrAppend(&text, "stopped early: no better ", report.result().best_by(), " for ",
                    Count(report.epochs_without_best(), "epoch"), "\n");
  }
  if (!report.model().empty()) {
    absl::StrAppend(&text, report.model(), ", ", WithThousands(report.parameters()),
                    " parameters, on ", report.data(), "\n");
  }
  absl::StrAppend(&text, FormatSeconds(report.wall_seconds()), ", ",
                  WithThousands(std::llround(report.samples_per_second())), " samples/s with ",
                  Count(report.slots_size(), "worker"), " and ",
                  Count(report.servers_size(), "server"), ", ",
                  DescribeConsistency(report.job().consistency()), "\n");
  return text;
}

std::string Restarts(const Report& report) {
  std::vector<std::string> parts;
  const Report::Restarts& restarts = report.restarts();
  if (restarts.servers() > 0) parts.push_back(Count(restarts.servers(), "server"));
  if (restarts.workers() > 0) parts.push_back(Count(restarts.workers(), "worker"));
  if (parts.empty()) return "";
  return absl::StrCat("restarted after a crash: ", absl::StrJoin(parts, ", "), "\n");
}

std::string Targets(const Report& report) {
  std::string text;
  for (const Report::Target& target : report.targets()) {
    absl::StrAppend(&text, TargetText(target), "\n");
  }
  return text;
}

// Lists checkpoints, the checkpoint that the job resumed from, and lost updates.
std::string Kept(const Report& report) {
  std::string text = StoppedAndResumed(report.stopped(), report.resumed_checkpoint());
  const CheckpointStatus& last = report.checkpoint();
  if (last.number() > 0) {
    absl::StrAppend(&text, Count(static_cast<int64_t>(last.completed()), "checkpoint"),
                    ", the last one is ", last.directory(), " (",
                    FormatBytes(static_cast<double>(last.bytes())), ")\n");
  }
  absl::StrAppend(&text, NotFiniteText(last.nonfinite_blocks(), /*has_checkpoint=*/true));
  if (!last.last_error().empty()) {
    absl::StrAppend(&text, "the last checkpoint failed: ", last.last_error(), "\n");
  }
  for (const Report::Slot& slot : report.slots()) {
    if (!slot.has_rolled_back()) continue;
    absl::StrAppend(&text, "slot ", slot.slot(), ": ", WithThousands(slot.rolled_back().blocks()),
                    " blocks of ", WithThousands(slot.rolled_back().pushes()),
                    " acknowledged pushes were rolled back by a server restart\n");
  }
  return text;
}

// Maximum number of rows for the epochs.
constexpr int kMaxEpochRows = 30;

std::string EpochTable(const Report& report) {
  if (report.epochs().empty()) return "";
  const bool reissues =
      std::any_of(report.epochs().begin(), report.epochs().end(),
                  [](const Report::Epoch& epoch) { return epoch.accounting().reissued() > 0; });
  std::vector<std::string> titles = {">epoch", ">samples used", reissues ? ">re-issued" : "",
                                     ">train loss", ">test loss"};
  for (const MetricValue& metric : report.result().metrics()) {
    titles.push_back(absl::StrCat(">test ", metric.name()));
  }
  titles.push_back(">after");
  TextTable table(titles);
  const int epochs = report.epochs_size();
  const int stride = (epochs + kMaxEpochRows - 1) / kMaxEpochRows;
  for (int index = 0; index < epochs; ++index) {
    const Report::Epoch& epoch = report.epochs(index);
    const EpochAccounting& accounting = epoch.accounting();
    const bool is_best = accounting.epoch() == report.result().best_epoch();
    if (index % stride != 0 && index != epochs - 1 && !is_best) continue;
    const Report::Evaluation& test = epoch.test();
    const double at = epoch.has_test() ? test.at_seconds() : accounting.closed_at_seconds();
    std::vector<std::string> row = {
        absl::StrCat(accounting.epoch()), WithThousands(accounting.used()),
        reissues ? WithThousands(accounting.reissued()) : "",
        accounting.used() > 0 ? FormatLoss(accounting.train_loss()) : "-",
        epoch.has_test() ? FormatLoss(test.loss()) : "-"};
    for (int i = 0; i < report.result().metrics_size(); ++i) {
      row.push_back(i < test.metrics_size() ? MetricText(test.metrics(i)) : "-");
    }
    row.push_back(accounting.closed() ? FormatSeconds(at) : "open");
    table.AddRow(row);
  }
  const std::string rest = absl::StrCat("one in ", stride, " of ", epochs,
                                        " epochs, the best and the last; the JSON contains all\n");
  return absl::StrCat("\n", table.Format(), stride > 1 ? rest : "");
}

// Time shares of each slot, in whole percent.
std::string SlotTable(const Report& report) {
  if (report.slots().empty()) return "";
  const bool shows_batch = report.job().training().balance() == TrainingSpec::SPEED ||
                           report.job().training().global_batch();
  const bool lost = std::any_of(report.slots().begin(), report.slots().end(),
                                [](const Report::Slot& slot) { return slot.lost_samples() > 0; });
  const bool stopped =
      std::any_of(report.slots().begin(), report.slots().end(),
                  [](const Report::Slot& slot) { return slot.stopped_steps() > 0; });
  const bool overflowed =
      std::any_of(report.slots().begin(), report.slots().end(),
                  [](const Report::Slot& slot) { return slot.overflows() > 0; });
  constexpr size_t kColumns = 17;
  TextTable table({">slot", "host", "device", ">steps", ">samples", shows_batch ? ">batch" : "",
                   ">compute", ">push", ">pull", ">wait", ">data", ">other", ">rejected",
                   lost ? ">samples lost" : "", stopped ? ">begun anew" : "",
                   overflowed ? ">overflows" : "", "state"});
  for (const Report::Slot& slot : report.slots()) {
    const Report::Times& shares = slot.shares();
    const bool timed = std::max({shares.compute(), shares.push(), shares.pull(), shares.wait(),
                                 shares.data(), shares.other()}) > 0;
    const auto share = [timed](double share) { return timed ? FormatPercent(share, 0) : "-"; };
    table.AddRow({absl::StrCat(slot.slot()), slot.host(), DeviceText(slot.device(), slot.members()),
                  WithThousands(slot.steps()), WithThousands(slot.samples()),
                  shows_batch ? WithThousands(slot.batch_size()) : "", share(shares.compute()),
                  share(shares.push()), share(shares.pull()), share(shares.wait()),
                  share(shares.data()), share(shares.other()),
                  WithThousands(slot.rejected_pushes()),
                  lost ? WithThousands(slot.lost_samples()) : "",
                  stopped ? WithThousands(slot.stopped_steps()) : "",
                  overflowed ? WithThousands(slot.overflows()) : "",
                  StateAndReason(slot.state(), slot.reason())});
    for (const ReplicaMember& member : slot.members()) {
      std::vector<std::string> row(kColumns);
      row[1] = member.host() == slot.host() ? "" : member.host();
      row[2] = member.device();
      row.back() = MemberText(member);
      table.AddRow(std::move(row));
    }
  }
  return "\n" + table.Format();
}

struct Range {
  int64_t first = 0;
  int64_t last = 0;
  bool open = false;  // includes larger values
  int64_t count = 0;
};

// Returns the rows of a histogram: one for each value if there are few values, otherwise one for
// each of the ranges 0, 1, 2-3, 4-7, 8-15 and so on.
std::vector<Range> GetRanges(const Report::Distribution& distribution) {
  constexpr int64_t kMaxRows = 12;
  const int64_t used = distribution.histogram_size();
  std::vector<Range> ranges;
  for (int64_t first = 0; first < used;) {
    const int64_t width = used <= kMaxRows || first == 0 ? 1 : first;
    Range range;
    range.first = first;
    range.last = std::min(first + width, used) - 1;
    for (int64_t i = range.first; i <= range.last; ++i) {
      range.count += distribution.histogram(static_cast<int>(i));
    }
    first += width;
    range.open = distribution.last_bucket_is_open() && first >= used;
    ranges.push_back(range);
  }
  return ranges;
}

std::string Bars(const std::string& title, const Report::Distribution& distribution) {
  if (distribution.count() == 0) return "";
  constexpr double kBarWidth = 40;
  std::string text = absl::StrFormat("\n%s: mean %.2f, largest %d\n", title, distribution.mean(),
                                     distribution.max());
  const std::vector<Range> ranges = GetRanges(distribution);
  int64_t highest = 1;
  for (const Range& range : ranges) highest = std::max(highest, range.count);
  for (const Range& range : ranges) {
    const std::string label = range.open ? absl::StrCat(range.first, "+")
                              : range.first == range.last
                                  ? absl::StrCat(range.first)
                                  : absl::StrCat(range.first, "-", range.last);
    // Nonzero counts get at least one character.
    const int length =
        range.count == 0
            ? 0
            : std::max(1,
                       static_cast<int>(std::lround(kBarWidth * static_cast<double>(range.count) /
                                                    static_cast<double>(highest))));
    std::string bar;
    for (int i = 0; i < length; ++i) bar += "▇";
    const double share =
        static_cast<double>(range.count) / static_cast<double>(distribution.count());
    absl::StrAppendFormat(&text, "%9s  %5.1f %%", label, share * 100);
    absl::StrAppend(&text, bar.empty() ? "" : "  ", bar, "\n");
  }
  return text;
}

// Describes updates, gradient ages and waits; "" unless apply is WHOLE_BATCH.
std::string Updates(const Report& report) {
  if (!report.has_updates()) return "";
  const Report::Updates& updates = report.updates();
  const auto of_age = [&updates](int age) {
    return age < updates.by_age_size() ? updates.by_age(age) : 0;
  };
  int64_t older = 0;
  for (int age = 2; age < updates.by_age_size(); ++age) older += updates.by_age(age);
  const int bound = report.job().consistency().staleness_bound();
  double waited = 0, total = 0;
  for (const Report::Slot& slot : report.slots()) {
    const Report::Times& seconds = slot.seconds();
    waited += seconds.wait();
    total += seconds.compute() + seconds.push() + seconds.pull() + seconds.wait() + seconds.data() +
             seconds.other();
  }
  std::string text = absl::StrCat(
      "\n", Count(updates.made(), "update"), " of a whole batch, ", WithThousands(updates.early()),
      " early; ", Count(of_age(0) + of_age(1) + older, "gradient"), ": ", WithThousands(of_age(0)),
      " on the newest values, ", WithThousands(of_age(1)), " one update older, ",
      WithThousands(older), " older (", bound < 0 ? "no bound" : absl::StrCat("bound ", bound),
      ")\n", WithThousands(updates.refused()), " refused",
      updates.refused() == 0   ? ""
      : updates.refused() == 1 ? ", its samples issued again"
                               : ", their samples issued again",
      "; workers waited ", FormatPercent(total > 0 ? waited / total : 0, 0), " of the time, ",
      FormatSeconds(updates.longest_wait_seconds()), " at most");
  if (const double steps = updates.longest_wait_steps(); steps > 0) {
    absl::StrAppendFormat(&text, " (%.1f %s)", steps, steps < 0.95 ? "of a step" : "steps");
  }
  absl::StrAppend(&text, "\n");
  for (const Report::Server& server : report.servers()) {
    if (!server.came_back()) continue;
    absl::StrAppend(&text, "server ", server.index(),
                    " restarted; it has counted gradients and waits only since then\n");
  }
  return text;
}

std::string ServerTable(const Report& report) {
  if (report.servers().empty()) return "";
  TextTable table({">server", "address", ">blocks", ">versions", ">applied", ">rejected",
                   ">duplicates", ">in", ">out"});
  std::string silent;
  for (const Report::Server& server : report.servers()) {
    if (server.has_error()) {
      table.AddRow({absl::StrCat(server.index()), server.address()});
      absl::StrAppend(&silent, "server ", server.index(), " did not answer: ", server.error(),
                      "\n");
      continue;
    }
    const VerdictCounts& verdicts = server.pushed_blocks().verdicts();
    table.AddRow({absl::StrCat(server.index()), server.address(), WithThousands(server.blocks()),
                  VersionRange(server.versions().min(), server.versions().max()),
                  WithThousands(server.pushed_blocks().applied()),
                  WithThousands(static_cast<int64_t>(NotApplied(verdicts))),
                  WithThousands(static_cast<int64_t>(verdicts.duplicates())),
                  FormatBytes(static_cast<double>(server.bytes_in())),
                  FormatBytes(static_cast<double>(server.bytes_out()))});
  }
  return absl::StrCat("\n", table.Format(), silent);
}

std::string Books(const Report& report) {
  std::vector<std::string> failed;
  int held = 0;
  for (const auto& [name, check] : GetChecks(report)) {
    if (check.holds()) ++held;
    if (check.has_holds() && !check.holds()) {
      failed.push_back(absl::StrCat("  ", name, ": expected ", WithThousands(check.expected()),
                                    ", found ", WithThousands(check.actual()), "\n"));
    }
  }
  if (!failed.empty()) {
    return absl::StrCat("\nconsistency check FAILED (docs/operate.md explains each check):\n",
                        absl::StrJoin(failed, ""));
  }
  if (held == 0) return "";
  const std::string& unjudged = report.reconciles().pushed_blocks().not_judged();
  std::string judged = absl::StrCat("samples, pushes and versions agree (", held, " checks)");
  if (!unjudged.empty()) {
    const bool kept = report.reconciles().kept_gradients().holds();
    judged = absl::StrCat(held, " checks agree; ",
                          kept ? "no acknowledged gradient is missing; further pushes" : "pushes",
                          " were not judged: ", unjudged);
  }
  return absl::StrCat("\nconsistency check passed", report.finished() ? "" : " so far", ": ",
                      judged, "\n");
}

}  // namespace

std::string TargetText(const Report::Target& target) {
  std::string text = absl::StrCat("target ", target.metric(), " ", target.value(), ": ");
  if (!target.has_seconds()) return text + "not met";
  absl::StrAppend(&text, "after ", FormatSeconds(target.seconds()), ", ",
                  Count(target.samples(), "sample"), " and ", WithThousands(target.pushes()),
                  target.pushes() == 1 ? " push" : " pushes");
  return text;
}

std::string ReportText(const Report& report) {
  std::string text =
      absl::StrCat(Headline(report), Targets(report), Kept(report), Restarts(report),
                   EpochTable(report), SlotTable(report), ServerTable(report), Updates(report));
  const ConsistencySpec& consistency = report.job().consistency();
  if (AppliesEachPush(consistency)) {
    std::string title = "steps ahead of the slowest worker when served";
    if (consistency.staleness_bound() >= 0) {
      absl::StrAppend(&title, " (bound ", consistency.staleness_bound(), ")");
    }
    absl::StrAppend(&text, Bars(title, report.clock_gap()),
                    Bars("lag of applied gradients, in versions", report.lag()));
  } else if (report.updates().by_age_size() > 2) {
    absl::StrAppend(&text, Bars("age of applied gradients, in updates", report.lag()));
  }
  return text + Books(report);
}

}  // namespace torchps
