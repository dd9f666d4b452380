#include "tools/report/report_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/base/format.h"
#include "tools/base/text_table.h"
#include "wire/verdict_counts.h"

namespace torchps {
namespace {

std::string Fixed(double value) { return absl::StrFormat("%.4f", value); }

std::string Headline(const Report& report) {
  std::string text = report.job.name();
  absl::StrAppend(&text, report.finished ? " finished" : " has not finished");
  if (const Report::Epoch* last = report.last_evaluated(); last != nullptr) {
    absl::StrAppend(&text, ": test accuracy ", FormatPercent(last->evaluation->accuracy, 2),
                    " after ", Count(last->number, "epoch"));
  }
  absl::StrAppend(&text, "\n", FormatSeconds(report.wall_seconds), ", ",
                  WithThousands(std::llround(report.samples_per_second)), " samples/s with ",
                  Count(static_cast<int64_t>(report.slots.size()), "worker"), " and ",
                  Count(static_cast<int64_t>(report.servers.size()), "server"), ", ",
                  DescribeConsistency(report.job.consistency()), "\n");
  return text;
}

std::string Restarts(const Report& report) {
  std::vector<std::string> parts;
  if (report.server_restarts > 0) parts.push_back(Count(report.server_restarts, "server"));
  if (report.worker_restarts > 0) parts.push_back(Count(report.worker_restarts, "worker"));
  if (parts.empty()) return "";
  return absl::StrCat("died and started again: ", absl::StrJoin(parts, ", "), "\n");
}

// What was kept, what the job went on from, and what was lost on the way.
std::string Kept(const Report& report) {
  std::string text;
  if (!report.stopped.empty()) absl::StrAppend(&text, "stopped early: ", report.stopped, "\n");
  if (report.resumed_checkpoint > 0) {
    absl::StrAppend(&text, "resumed from checkpoint ", report.resumed_checkpoint, "\n");
  }
  const CheckpointStatus& last = report.checkpoint;
  if (last.number() > 0) {
    absl::StrAppend(&text, Count(static_cast<int64_t>(last.completed()), "checkpoint"),
                    ", the last one is ", last.directory(), " (",
                    FormatBytes(static_cast<double>(last.bytes())), ")\n");
  }
  if (!last.last_error().empty()) {
    absl::StrAppend(&text, "the last checkpoint failed: ", last.last_error(), "\n");
  }
  for (const Report::Slot& slot : report.slots) {
    if (slot.rolled_back_pushes == 0) continue;
    absl::StrAppend(&text, "slot ", slot.slot, ": ",
                    WithThousands(static_cast<int64_t>(slot.rolled_back_blocks)), " blocks of ",
                    WithThousands(static_cast<int64_t>(slot.rolled_back_pushes)),
                    " acknowledged pushes were rolled back with a server that came back\n");
  }
  return text;
}

std::string EpochTable(const Report& report) {
  if (report.epochs.empty()) return "";
  const bool reissues = std::any_of(report.epochs.begin(), report.epochs.end(),
                                    [](const auto& epoch) { return epoch.reissued > 0; });
  TextTable table({">epoch", ">samples used", reissues ? ">re-issued" : "", ">train loss",
                   ">test loss", ">test accuracy", ">after"});
  for (const Report::Epoch& epoch : report.epochs) {
    const auto& test = epoch.evaluation;
    const double at = test ? test->at_seconds : epoch.closed_at_seconds;
    table.AddRow({absl::StrCat(epoch.number), WithThousands(epoch.used),
                  reissues ? WithThousands(epoch.reissued) : "",
                  epoch.used > 0 ? Fixed(epoch.train_loss) : "-", test ? Fixed(test->loss) : "-",
                  test ? FormatPercent(test->accuracy, 2) : "-",
                  epoch.closed ? FormatSeconds(at) : "open"});
  }
  return "\n" + table.Format();
}

// Shares of one slot's time, in whole per cent.
std::string SlotTable(const Report& report) {
  if (report.slots.empty()) return "";
  TextTable table({">slot", "host", "device", ">steps", ">samples", ">compute", ">push", ">pull",
                   ">wait", ">data", ">other", ">rejected", "state"});
  for (const Report::Slot& slot : report.slots) {
    const double total = slot.seconds.total();
    const auto share = [&](double seconds) {
      return total > 0 ? FormatPercent(seconds / total, 0) : "-";
    };
    table.AddRow({absl::StrCat(slot.slot), slot.host, slot.device,
                  WithThousands(static_cast<int64_t>(slot.steps)),
                  WithThousands(static_cast<int64_t>(slot.samples)), share(slot.seconds.compute),
                  share(slot.seconds.push), share(slot.seconds.pull), share(slot.seconds.wait),
                  share(slot.seconds.data), share(slot.seconds.other),
                  WithThousands(static_cast<int64_t>(slot.rejected_pushes)),
                  slot.reason.empty() ? slot.state : absl::StrCat(slot.state, ": ", slot.reason)});
  }
  return "\n" + table.Format();
}

struct Range {
  int64_t first = 0;
  int64_t last = 0;
  bool open = false;  // all from `first` up
  uint64_t count = 0;
};

// One range per value while they are few, otherwise 0, 1, 2-3, 4-7, 8-15 and so on.
std::vector<Range> RangesOf(const Report::Distribution& distribution) {
  constexpr int64_t kMostRows = 12;
  const int64_t used = static_cast<int64_t>(distribution.counts.size());
  std::vector<Range> ranges;
  for (int64_t first = 0; first < used;) {
    const int64_t width = used <= kMostRows || first == 0 ? 1 : first;
    Range range;
    range.first = first;
    range.last = std::min(first + width, used) - 1;
    for (int64_t i = range.first; i <= range.last; ++i) range.count += distribution.counts[i];
    first += width;
    range.open = distribution.open && first >= used;
    ranges.push_back(range);
  }
  return ranges;
}

std::string Bars(const std::string& title, const Report::Distribution& distribution) {
  if (distribution.count == 0) return "";
  constexpr double kBarWidth = 40;
  std::string text =
      absl::StrFormat("\n%s: mean %.2f, largest %d\n", title, distribution.mean, distribution.max);
  const std::vector<Range> ranges = RangesOf(distribution);
  uint64_t highest = 1;
  for (const Range& range : ranges) highest = std::max(highest, range.count);
  for (const Range& range : ranges) {
    const std::string label = range.open ? absl::StrCat(range.first, "+")
                              : range.first == range.last
                                  ? absl::StrCat(range.first)
                                  : absl::StrCat(range.first, "-", range.last);
    // What happened at all can be seen.
    const int length =
        range.count == 0
            ? 0
            : std::max(1,
                       static_cast<int>(std::lround(kBarWidth * static_cast<double>(range.count) /
                                                    static_cast<double>(highest))));
    std::string bar;
    for (int i = 0; i < length; ++i) bar += "▇";
    const double share = static_cast<double>(range.count) / static_cast<double>(distribution.count);
    absl::StrAppendFormat(&text, "%9s  %5.1f %%", label, share * 100);
    absl::StrAppend(&text, bar.empty() ? "" : "  ", bar, "\n");
  }
  return text;
}

std::string ServerTable(const Report& report) {
  if (report.servers.empty()) return "";
  TextTable table({">server", "address", ">blocks", ">versions", ">applied", ">rejected",
                   ">duplicates", ">in", ">out"});
  for (const Report::Server& server : report.servers) {
    if (!server.error.empty()) {
      table.AddRow({absl::StrCat(server.index), server.address});
      continue;
    }
    const std::string versions = server.min_version == server.max_version
                                     ? absl::StrCat(server.max_version)
                                     : absl::StrCat(server.min_version, "-", server.max_version);
    table.AddRow({absl::StrCat(server.index), server.address,
                  WithThousands(static_cast<int64_t>(server.blocks)), versions,
                  WithThousands(static_cast<int64_t>(Applied(server.verdicts))),
                  WithThousands(static_cast<int64_t>(NotApplied(server.verdicts))),
                  WithThousands(static_cast<int64_t>(server.verdicts.duplicates())),
                  FormatBytes(static_cast<double>(server.bytes_in)),
                  FormatBytes(static_cast<double>(server.bytes_out))});
  }
  std::string text = "\n" + table.Format();
  for (const Report::Server& server : report.servers) {
    if (server.error.empty()) continue;
    absl::StrAppend(&text, "server ", server.index, " did not answer: ", server.error, "\n");
  }
  return text;
}

std::string Books(const Report& report) {
  std::vector<std::string> failed;
  int held = 0;
  for (const Report::Check& check : report.checks) {
    if (check.holds == true) ++held;
    if (check.holds == false) {
      failed.push_back(absl::StrCat("  ", check.name, ": expected ", WithThousands(check.expected),
                                    ", found ", WithThousands(check.actual), "\n"));
    }
  }
  if (!failed.empty()) {
    return absl::StrCat("\nthe books do NOT reconcile (docs/report.md says what each compares):\n",
                        absl::StrJoin(failed, ""));
  }
  if (held == 0) return "";
  return absl::StrCat("\nthe books reconcile", report.finished ? "" : " so far", ": all ", held,
                      " comparisons of samples, pushes and versions hold\n");
}

}  // namespace

std::string ReportText(const Report& report) {
  std::string text = absl::StrCat(Headline(report), Kept(report), Restarts(report),
                                  EpochTable(report), SlotTable(report), ServerTable(report));
  // In a synchronous run nobody is ahead and nothing lags: there is nothing to see.
  const ConsistencySpec& consistency = report.job.consistency();
  if (consistency.mode() == ConsistencySpec::ASYNC) {
    std::string title = "steps ahead of the slowest worker when served";
    if (consistency.staleness_bound() >= 0) {
      absl::StrAppend(&title, " (bound ", consistency.staleness_bound(), ")");
    }
    absl::StrAppend(&text, Bars(title, report.clock_gap),
                    Bars("lag of applied gradients, in versions", report.lag));
  }
  return text + Books(report);
}

}  // namespace torchps
