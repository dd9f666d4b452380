#include "torchps/tools/report/status_command.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "torchps/common/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/base/interrupt.h"
#include "torchps/tools/report/cluster_client.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

namespace {

// Returns the samples by slot.
std::map<int, uint64_t> GetSamples(const ClusterView& view) {
  std::map<int, uint64_t> samples;
  if (!view.job.ok()) return samples;
  for (const SlotAccounting& slot : view.job->slot())
    samples[slot.slot()] = slot.figures().samples();
  return samples;
}

// Returns the samples per second by slot.
std::map<int, double> GetRates(const ClusterView& view, const ClusterView* previous) {
  std::map<int, double> rates;
  if (!view.job.ok()) return rates;
  std::map<int, uint64_t> before;
  double seconds = view.job->running_seconds();
  const bool same_job =
      previous != nullptr && previous->job.ok() && previous->job->job_id() == view.job->job_id();
  if (same_job) {
    before = GetSamples(*previous);
    seconds = absl::ToDoubleSeconds(view.seen_at - previous->seen_at);
  }
  for (const auto& [slot, samples] : GetSamples(view)) {
    const uint64_t done = samples >= before[slot] ? samples - before[slot] : samples;
    rates[slot] = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  }
  return rates;
}

std::string Rate(double per_second) { return WithThousands(std::llround(per_second)); }

// Describes the last checkpoint; "" if checkpoints are disabled.
std::string Checkpoint(const JobStatus& job) {
  const CheckpointStatus& status = job.checkpoint();
  if (!status.enabled()) return "";
  std::string text = "no checkpoint yet";
  if (status.number() > 0) {
    text = absl::StrCat(
        "checkpoint ", status.number(), ": ", FormatBytes(static_cast<double>(status.bytes())),
        " in ", FormatSeconds(status.seconds()), ", ",
        FormatSeconds(std::max(0.0, job.running_seconds() - status.at_seconds())), " ago");
  }
  if (!status.last_error().empty()) {
    absl::StrAppend(&text, "; the last one failed: ", status.last_error());
  }
  return absl::StrCat(text, "\n");
}

// Returns the number of non-finite blocks that the servers or the last checkpoint found.
uint64_t NonfiniteBlocks(const ClusterView& view) {
  uint64_t now = 0;
  for (const ServerAnswer& answer : view.servers) {
    if (answer.status.ok()) now += answer.status->nonfinite_blocks();
  }
  return std::max(now, view.job->checkpoint().nonfinite_blocks());
}

// Returns a line on updates, gradient ages and waits; "" unless apply is WHOLE_BATCH.
std::string Updates(const ClusterView& view) {
  const auto updates = GetUpdates(view.job->job().consistency(), view.servers);
  if (!updates.has_value() || updates->by_age().empty()) return "";
  double gradients = 0;
  for (const int64_t count : updates->by_age()) gradients += static_cast<double>(count);
  return absl::StrCat("updates ", WithThousands(updates->made()), " (",
                      WithThousands(updates->early()), " early), newest values ",
                      FormatPercent(static_cast<double>(updates->by_age(0)) / gradients, 1),
                      ", refused ", WithThousands(updates->refused()), ", longest wait ",
                      FormatSeconds(updates->longest_wait_seconds()), "\n");
}

// Returns true if the server refused the request. The message of `status` then begins with the
// server's action: "refuses this client", "answers, but ...".
bool Refused(const absl::Status& status) { return ExitCodeFor(status) == ExitCode::kRefused; }

std::string Headline(const ClusterView& view, const std::map<int, double>& rates) {
  if (!view.job.ok()) {
    return absl::StrCat(
        "server 0, which knows about the job,",
        Refused(view.job.status()) ? " " : " does not answer: ", view.job.status().message(), "\n");
  }
  const JobStatus& job = *view.job;
  if (job.phase() == JobStatus::NO_JOB) {
    return FirstIsAnother(view.servers)
               ? absl::StrCat(view.servers[0].address,
                              " does not coordinate the job, server 0 does\n")
               : "no job yet: no worker has connected\n";
  }
  const int workers = job.job().workers();
  std::string text = absl::StrCat(job.job().name(), " is ", PhaseName(job.phase()));
  if (job.phase() == JobStatus::GATHERING) {
    absl::StrAppend(&text, ": ", job.slot_size(), " of ", Count(workers, "worker"), " joined");
  }
  if (job.epoch_size() > 0) {
    double total = 0;
    for (const auto& [slot, rate] : rates) total += rate;
    int latest = 0;
    for (const EpochAccounting& accounting : job.epoch())
      latest = std::max(latest, accounting.epoch());
    absl::StrAppend(&text, ": epoch ", latest, " of ", job.job().training().epochs(), ", ",
                    FormatSeconds(job.running_seconds()));
    if (job.phase() != JobStatus::DONE) absl::StrAppend(&text, ", ", Rate(total), " samples/s");
  }
  if (job.evaluation_size() > 0) {
    const EvaluationResult& last =
        *std::max_element(job.evaluation().begin(), job.evaluation().end(),
                          [](const auto& a, const auto& b) { return a.epoch() < b.epoch(); });
    if (last.samples() > 0) {
      absl::StrAppend(&text, ", ", ResultText(last.metric(), last.loss()), " after epoch ",
                      last.epoch());
    }
  }
  absl::StrAppend(&text, "\n", job.model(), " with ", WithThousands(job.parameters()),
                  " parameters, on ", job.data(), ", ",
                  DescribeConsistency(job.job().consistency()), "\n");
  return absl::StrCat(text, Updates(view),
                      StoppedAndResumed(job.stopped(), job.resumed_checkpoint()), Checkpoint(job),
                      NotFiniteText(NonfiniteBlocks(view), job.checkpoint().number() > 0));
}

// Returns true if pulls may park until other slots catch up. They never park with apply
// WHOLE_BATCH, so the tables then omit clock gaps and parked pulls.
bool IsBoundInSteps(const ClusterView& view) {
  if (!view.job.ok()) return true;
  const ConsistencySpec& consistency = view.job->job().consistency();
  return HasRounds(consistency) || AppliesEachPush(consistency);
}

// Status mentions a server with more bytes than this that are not copied yet. Smaller backlogs are
// normal.
constexpr uint64_t kMuchUncopied = uint64_t{32} << 20;

std::string ServerTable(const ClusterView& view) {
  const bool by_steps = IsBoundInSteps(view);
  TextTable table({">server", "address", ">blocks", ">size", ">versions", ">lag",
                   by_steps ? ">clock gap" : "", by_steps ? ">parked" : "", ">applied", ">rejected",
                   ">in", ">out"});
  std::string away;
  for (size_t i = 0; i < view.servers.size(); ++i) {
    const ServerAnswer& answer = view.servers[i];
    if (!answer.status.ok()) {
      table.AddRow({absl::StrCat(i), answer.address, "-", "-", "-", "-", by_steps ? "-" : "",
                    by_steps ? "-" : ""});
      absl::StrAppend(
          &away, NoAnswerText(static_cast<int>(i), answer.address, answer.status.status()), "\n");
      continue;
    }
    const ServerStatus& status = *answer.status;
    if (status.has_restoring()) {
      absl::StrAppend(&away, "server ", i, " at ", answer.address, " ",
                      RestoringText(status.restoring()), "\n");
    }
    const DurabilityStatus& durability = status.durability();
    if (!durability.trouble().empty()) {
      absl::StrAppend(&away, "server ", i, " at ", answer.address, ": ", durability.trouble(),
                      "\n");
    } else if (durability.uncopied_bytes() > kMuchUncopied) {
      absl::StrAppend(&away, "server ", i, " at ", answer.address, " has ",
                      FormatBytes(static_cast<double>(durability.uncopied_bytes())),
                      " that are not copied yet\n");
    }
    const Histogram& lag = status.lag();
    table.AddRow(
        {absl::StrCat(i), answer.address, WithThousands(static_cast<int64_t>(status.blocks())),
         FormatBytes(static_cast<double>(status.state_bytes())),
         VersionRange(status.min_version(), status.max_version()),
         lag.count() == 0
             ? "-"
             : absl::StrFormat("%.1f (max %d)", lag.sum() / static_cast<double>(lag.count()),
                               lag.max()),
         !by_steps                         ? ""
         : status.clock_gap().count() == 0 ? "-"
                                           : absl::StrCat("max ", status.clock_gap().max()),
         by_steps ? WithThousands(static_cast<int64_t>(status.parked_now())) : "",
         WithThousands(static_cast<int64_t>(Applied(status.verdicts()))),
         WithThousands(static_cast<int64_t>(NotApplied(status.verdicts()))),
         FormatBytes(static_cast<double>(status.bytes_in())),
         FormatBytes(static_cast<double>(status.bytes_out()))});
  }
  return absl::StrCat("\n", table.Format(), away);
}

// Returns the slot's state. Mentions the duration of a pass only if it is long.
std::string ReadState(const SlotAccounting& slot) {
  constexpr double kLongSeconds = 10;
  std::string state = StateAndReason(StateName(slot.state()), slot.reason());
  if (slot.stalled_seconds() >= kLongSeconds) {
    absl::StrAppend(&state, ", pass running for ", FormatSeconds(slot.stalled_seconds()));
  }
  return state;
}

// Describes the path of payloads between a slot and the servers that list it as live.
std::string MakePath(int slot, const ClusterView& view) {
  int live = 0;
  int shared = 0;
  for (const ServerAnswer& answer : view.servers) {
    if (!answer.status.ok()) continue;
    for (const SlotStatus& status : answer.status->slot()) {
      if (status.slot() != slot || !status.live()) continue;
      ++live;
      if (status.shared_memory()) ++shared;
    }
  }
  if (live == 0) return "-";
  if (shared == 0) return "network";
  return shared == live ? "shared memory" : absl::StrCat("shared with ", shared, " of ", live);
}

std::string SlotTable(const ClusterView& view, const std::map<int, double>& rates) {
  if (!view.job.ok() || view.job->slot_size() == 0) return "";
  // The highest clock over the servers is the slot's clock.
  std::map<int, int64_t> clocks;
  int64_t slowest = std::numeric_limits<int64_t>::max();
  for (const ServerAnswer& answer : view.servers) {
    if (!answer.status.ok()) continue;
    for (const SlotStatus& slot : answer.status->slot()) {
      int64_t& clock = clocks.emplace(slot.slot(), slot.clock()).first->second;
      clock = std::max(clock, slot.clock());
      if (slot.live()) slowest = std::min(slowest, slot.clock());
    }
  }
  const bool shows_batch = view.job->job().training().balance() == TrainingSpec::SPEED ||
                           view.job->job().training().global_batch();
  const bool by_steps = IsBoundInSteps(view);
  constexpr size_t kColumns = 13;
  TextTable table({">slot", "host", "device", "path", "state", ">epoch", ">clock",
                   by_steps ? ">ahead" : "", ">steps", shows_batch ? ">batch" : "", ">samples/s",
                   ">wait", ">rejected"});
  for (const SlotAccounting& slot : view.job->slot()) {
    const StepFigures figures = GetFigures(slot, view.job->job().consistency(), view.servers);
    const double total = TotalSeconds(figures);
    const auto clock = clocks.find(slot.slot());
    const bool at_work =
        slot.state() == SlotAccounting::TRAINING || slot.state() == SlotAccounting::EVALUATING;
    table.AddRow({absl::StrCat(slot.slot()), slot.host(), DeviceText(slot.device(), slot.member()),
                  MakePath(slot.slot(), view), ReadState(slot),
                  slot.epoch() > 0 ? absl::StrCat(slot.epoch()) : "-",
                  clock != clocks.end() ? absl::StrCat(clock->second) : "-",
                  !by_steps ? ""
                  : at_work && clock != clocks.end() && slowest <= clock->second
                      ? absl::StrCat(clock->second - slowest)
                      : "-",
                  WithThousands(static_cast<int64_t>(figures.pushes())),
                  shows_batch ? WithThousands(slot.batch_size()) : "", Rate(rates.at(slot.slot())),
                  total > 0 ? FormatPercent(figures.wait_seconds() / total, 0) : "-",
                  WithThousands(static_cast<int64_t>(figures.rejected_pushes()))});
    if (slot.member_size() < 2) continue;
    for (const ReplicaMember& member : slot.member()) {
      std::vector<std::string> row(kColumns);
      row[1] = member.host() == slot.host() ? "" : member.host();
      row[2] = member.device();
      row[4] = MemberText(member);
      table.AddRow(std::move(row));
    }
  }
  return absl::StrCat("\n", table.Format());
}

}  // namespace

ClusterView ReadCluster(ClusterClient& cluster, absl::Duration timeout, absl::Duration now) {
  absl::StatusOr<JobStatus> job = cluster.GetJobStatus(/*wait_until_done=*/false, timeout);
  return {std::move(job), AskAllServers(cluster, timeout), now};
}

std::string StatusText(const ClusterView& view, const ClusterView* previous) {
  const std::map<int, double> rates = GetRates(view, previous);
  return absl::StrCat(Headline(view, rates), ServerTable(view),
                      ServerListText(view.job, view.servers), SlotTable(view, rates));
}

bool NoneReachable(const ClusterView& view) {
  return !view.job.ok() &&
         std::none_of(view.servers.begin(), view.servers.end(),
                      [](const ServerAnswer& answer) { return answer.status.ok(); });
}

namespace {

constexpr absl::Duration kStatusTimeout = absl::Seconds(3);
constexpr absl::Duration kRefreshInterval = absl::Seconds(1);

// Shows the status repeatedly until interrupted. On a terminal, each status replaces the previous
// one.
int WatchStatus(ClusterClient& cluster, std::ostream& out, int interrupt_fd) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const SteadyClock clock;
  std::optional<ClusterView> previous;
  for (;;) {
    ClusterView view = ReadCluster(cluster, kStatusTimeout, clock.Now());
    const std::string text = StatusText(view, previous.has_value() ? &*previous : nullptr);
    // Clears the screen only when the new text is ready, to avoid flicker.
    out << (terminal ? "\x1b[H\x1b[J" : "") << text << (terminal ? "" : "\n") << std::flush;
    previous.emplace(std::move(view));
    if (WaitForActivity({}, interrupt_fd, kRefreshInterval) || !out.good()) {
      return static_cast<int>(ExitCode::kOk);
    }
  }
}

}  // namespace

std::vector<FlagSpec> StatusFlags() {
  std::vector<FlagSpec> flags = ClusterFlags();
  flags.push_back({"watch", "", "Repeats every second until Ctrl-C."});
  return flags;
}

int ShowStatus(ClusterClient& cluster, std::ostream& out) {
  const SteadyClock clock;
  const ClusterView view = ReadCluster(cluster, kStatusTimeout, clock.Now());
  out << StatusText(view, nullptr) << std::flush;
  if (!NoneReachable(view)) return static_cast<int>(ExitCode::kOk);
  const bool refused = ExitCodeFor(view.job.status()) == ExitCode::kRefused;
  return static_cast<int>(refused ? ExitCode::kRefused : ExitCode::kUnreachable);
}

int StatusCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  // Created first, so that the threads of gRPC inherit the blocked signals.
  std::optional<Interrupt> interrupt;
  if (flags.Has("watch")) interrupt.emplace();
  const absl::StatusOr<std::unique_ptr<ClusterClient>> cluster = ConnectByFlags(flags, "status");
  if (!cluster.ok()) {
    error << "psctl: " << cluster.status().message() << std::endl;
    return static_cast<int>(ExitCodeFor(cluster.status()));
  }
  if (!interrupt.has_value()) return ShowStatus(**cluster, out);
  return WatchStatus(**cluster, out, interrupt->fd());
}

}  // namespace torchps
