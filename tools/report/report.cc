#include "tools/report/report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tools/base/format.h"
#include "wire/verdict_counts.h"

namespace torchps {
namespace {

Report::Epoch EpochOf(const EpochBooks& books) {
  Report::Epoch epoch;
  epoch.number = books.epoch();
  epoch.closed = books.closed();
  epoch.samples = books.samples();
  epoch.used = books.used();
  epoch.reissued = books.reissued();
  epoch.outstanding = books.outstanding();
  epoch.train_loss = books.train_loss();
  epoch.closed_at_seconds = books.closed_at_seconds();
  return epoch;
}

Report::Evaluation EvaluationOf(const EvaluationResult& result) {
  Report::Evaluation evaluation;
  evaluation.samples = result.samples();
  evaluation.loss = result.loss();
  evaluation.accuracy = result.accuracy();
  evaluation.seconds = result.seconds();
  evaluation.at_seconds = result.at_seconds();
  return evaluation;
}

Report::Slot SlotOf(const SlotBooks& books) {
  const StepFigures& figures = books.figures();
  Report::Slot slot;
  slot.slot = books.slot();
  slot.incarnation = books.incarnation();
  slot.host = books.host();
  slot.device = books.device();
  slot.state = StateName(books.state());
  slot.reason = books.reason();
  slot.steps = figures.pushes();
  slot.samples = figures.samples();
  slot.mean_loss = figures.samples() > 0 ? figures.loss_sum() / figures.samples() : 0;
  slot.rejected_pushes = figures.rejected_pushes();
  slot.skipped_nonfinite = figures.skipped_nonfinite();
  slot.rolled_back_pushes = figures.rolled_back_pushes();
  slot.rolled_back_blocks = figures.rolled_back_blocks();
  slot.seconds.compute = figures.compute_seconds();
  slot.seconds.push = figures.push_seconds();
  slot.seconds.pull = figures.pull_seconds();
  slot.seconds.wait = figures.wait_seconds();
  slot.seconds.data = figures.data_seconds();
  slot.seconds.other = figures.other_seconds();
  return slot;
}

Report::Server ServerOf(int index, const ServerAnswer& answer, double job_seconds) {
  Report::Server server;
  server.index = index;
  server.address = answer.address;
  if (!answer.status.ok()) {
    server.error = std::string(answer.status.status().message());
    return server;
  }
  const ServerStatus& status = *answer.status;
  server.blocks = status.blocks();
  server.state_bytes = status.state_bytes();
  server.min_version = status.min_version();
  server.max_version = status.max_version();
  server.bytes_in = status.bytes_in();
  server.bytes_out = status.bytes_out();
  server.uptime_seconds = status.uptime_ms() / 1000.0;
  server.restored_checkpoint = status.durability().restored_checkpoint();
  // A server is there before its job starts.
  server.came_back = server.restored_checkpoint > 0 || status.durability().replayed() > 0 ||
                     server.uptime_seconds < job_seconds;
  server.verdicts = status.verdicts();
  return server;
}

// `mean` holds the sum of all values until Finish.
void Merge(const Histogram& part, Report::Distribution& whole) {
  if (whole.counts.size() < static_cast<size_t>(part.bucket_size())) {
    whole.counts.resize(part.bucket_size());
  }
  for (int i = 0; i < part.bucket_size(); ++i) whole.counts[i] += part.bucket(i);
  if (part.count() > 0) {
    whole.max = whole.count > 0 ? std::max<int64_t>(whole.max, part.max()) : part.max();
  }
  whole.count += part.count();
  whole.mean += part.sum();
}

void Finish(Report::Distribution& whole) {
  whole.open = whole.count > 0 && whole.max >= static_cast<int64_t>(whole.counts.size());
  while (!whole.counts.empty() && whole.counts.back() == 0) whole.counts.pop_back();
  if (whole.count > 0) whole.mean /= static_cast<double>(whole.count);
}

// Collects the comparisons; see docs/report.md, "reconciles".
class Checker {
 public:
  explicit Checker(std::vector<Report::Check>& checks) : checks_(checks) {}

  void Equal(const std::string& name, int64_t expected, int64_t actual,
             const std::string& not_judged) {
    Judge(name, expected, actual, expected == actual, not_judged);
  }
  void AtMost(const std::string& name, int64_t bound, int64_t actual,
              const std::string& not_judged) {
    Judge(name, bound, actual, actual <= bound, not_judged);
  }
  void AtLeast(const std::string& name, int64_t bound, int64_t actual,
               const std::string& not_judged) {
    Judge(name, bound, actual, actual >= bound, not_judged);
  }

 private:
  void Judge(const std::string& name, int64_t expected, int64_t actual, bool holds,
             const std::string& not_judged) {
    Report::Check check;
    check.name = name;
    check.expected = expected;
    check.actual = actual;
    check.note = not_judged;
    if (not_judged.empty()) check.holds = holds;
    checks_.push_back(std::move(check));
  }

  std::vector<Report::Check>& checks_;
};

// The first of the reasons that applies, else "".
std::string FirstReason(std::initializer_list<std::pair<bool, const char*>> reasons) {
  for (const auto& [applies, reason] : reasons) {
    if (applies) return reason;
  }
  return "";
}

void CheckAll(Report& report) {
  const ConsistencySpec& consistency = report.job.consistency();
  const TrainingSpec& training = report.job.training();
  const bool async = consistency.mode() == ConsistencySpec::ASYNC;
  const bool answered = std::all_of(report.servers.begin(), report.servers.end(),
                                    [](const Report::Server& s) { return s.error.empty(); });
  const bool cut_short = !report.finished;
  const bool limited = training.max_pushes() > 0;
  const char* const kCutShort = "the job has not finished";
  const char* const kLimited = "max_pushes ends the job before its epochs do";
  const char* const kSilent = "a server did not answer";

  int64_t used = 0, evaluated = 0, samples_per_epoch = 0, total_blocks = 0;
  for (const Report::Epoch& epoch : report.epochs) {
    used += epoch.used;
    evaluated += epoch.evaluation.has_value() ? 1 : 0;
    samples_per_epoch = std::max(samples_per_epoch, epoch.samples);
  }
  for (const Report::Server& server : report.servers) {
    total_blocks += static_cast<int64_t>(server.blocks);
  }
  const int64_t pushes = static_cast<int64_t>(report.pushes);
  const VerdictCounts& blocks = report.blocks;

  // A process that died took the figures of its last steps with it; what it had in hand was handed
  // out again.
  const bool died = std::any_of(report.slots.begin(), report.slots.end(),
                                [](const auto& slot) {
                                  return slot.state == "expired" || slot.state == "left";
                                }) ||
                    std::any_of(report.epochs.begin(), report.epochs.end(),
                                [](const auto& epoch) { return epoch.reissued > 0; });
  const char* const kDied = "a worker ended early and took the figures of its last steps with it";
  const bool resumed = report.resumed_checkpoint > 0;
  const char* const kResumed = "the job was resumed from a checkpoint";
  const bool came_back = std::any_of(report.servers.begin(), report.servers.end(),
                                     [](const Report::Server& s) { return s.came_back; });
  const char* const kCameBack = "a server came back and has counted only since then";

  Checker checker(report.checks);
  checker.Equal("samples_used", int64_t{training.epochs()} * samples_per_epoch, used,
                FirstReason({{cut_short, kCutShort}, {limited, kLimited}}));
  checker.Equal("slot_samples", used, static_cast<int64_t>(report.samples),
                FirstReason({{cut_short, kCutShort}, {died, kDied}, {resumed, kResumed}}));
  checker.Equal("evaluations", training.evaluate() ? training.epochs() : 0, evaluated,
                FirstReason({{cut_short, kCutShort}, {limited, kLimited}}));
  checker.Equal("pushed_blocks", pushes * total_blocks, static_cast<int64_t>(Verdicts(blocks)),
                FirstReason({{!answered, kSilent},
                             {cut_short, kCutShort},
                             {died, kDied},
                             {resumed, kResumed},
                             {came_back, kCameBack}}));
  checker.Equal("acknowledged_blocks", static_cast<int64_t>(Verdicts(blocks)),
                static_cast<int64_t>(blocks.acknowledged()),
                FirstReason({{!answered, kSilent},
                             {cut_short, kCutShort},
                             {died, kDied},
                             {resumed, kResumed},
                             {came_back, kCameBack}}));
  checker.Equal("lag_counted", static_cast<int64_t>(Applied(blocks)),
                static_cast<int64_t>(report.lag.count), FirstReason({{!answered, kSilent}}));
  // A push raises every block's version by one, and a push that a server has lost lowers it by one
  // on the blocks that lack it.
  const int64_t lost = static_cast<int64_t>(report.rolled_back_pushes);
  const std::string versions_not_judged =
      FirstReason({{!answered, kSilent},
                   {!async, "in SYNC a version is a round, not a push"},
                   {NotApplied(blocks) > 0, "some blocks were not applied"},
                   {came_back && consistency.lag().policy() == LagContract::REJECT, kCameBack},
                   {cut_short, kCutShort},
                   {died, kDied},
                   {resumed, kResumed}});
  if (lost == 0) {
    checker.Equal("min_version", pushes, report.min_version, versions_not_judged);
    checker.Equal("max_version", pushes, report.max_version, versions_not_judged);
  } else {
    checker.AtLeast("min_version", pushes - lost, report.min_version, versions_not_judged);
    checker.AtMost("max_version", pushes, report.max_version, versions_not_judged);
    int64_t versions = 0;
    bool even = true;
    for (const Report::Server& server : report.servers) {
      even = even && server.min_version == server.max_version;
      versions += static_cast<int64_t>(server.blocks) * server.max_version;
    }
    checker.Equal("kept_blocks",
                  pushes * total_blocks - static_cast<int64_t>(report.rolled_back_blocks), versions,
                  even ? versions_not_judged : "a server's blocks are at different versions");
  }
  checker.Equal(
      "rounds", report.max_version, report.min_version,
      FirstReason({{!answered, kSilent},
                   {async, "ASYNC has no rounds"},
                   {lost > 0, "a server came back and has passed over the rounds that it lost"},
                   {cut_short, kCutShort}}));
  checker.AtMost("clock_gap", consistency.staleness_bound(), report.clock_gap.max,
                 FirstReason({{!answered, kSilent},
                              {!async, "SYNC has no staleness bound"},
                              {consistency.staleness_bound() < 0, "there is no staleness bound"}}));
  const bool bounded_lag = async && consistency.lag().policy() == LagContract::REJECT;
  checker.AtMost(
      "lag", consistency.lag().max_lag(), report.lag.max,
      FirstReason({{!answered, kSilent},
                   {!bounded_lag, "the lag contract rejects nothing"},
                   {blocks.admitted() > 0, "stragglers' blocks above it were admitted"}}));
}

}  // namespace

bool Report::reconciles() const {
  return std::none_of(checks.begin(), checks.end(),
                      [](const Check& check) { return check.holds == false; });
}

const Report::Epoch* Report::last_evaluated() const {
  const auto found = std::find_if(epochs.rbegin(), epochs.rend(),
                                  [](const Epoch& e) { return e.evaluation.has_value(); });
  return found == epochs.rend() ? nullptr : &*found;
}

const Report::Epoch* Report::best_evaluated() const {
  const Epoch* best = nullptr;
  for (const Epoch& epoch : epochs) {
    if (!epoch.evaluation.has_value()) continue;
    if (best == nullptr || epoch.evaluation->accuracy > best->evaluation->accuracy) best = &epoch;
  }
  return best;
}

Report BuildReport(const JobStatus& job, const std::vector<ServerAnswer>& servers) {
  Report report;
  report.job_id = job.job_id();
  report.job = job.job();
  report.phase = PhaseName(job.phase());
  report.finished = job.phase() == JobStatus::DONE && job.stopped().empty();
  report.stopped = job.stopped();
  report.checkpoint = job.checkpoint();
  report.resumed_checkpoint = job.resumed_checkpoint();
  report.parameters = job.parameters();
  report.wall_seconds = job.running_seconds();

  std::map<int, Report::Epoch> epochs;
  for (const EpochBooks& books : job.epoch()) epochs[books.epoch()] = EpochOf(books);
  for (const EvaluationResult& result : job.evaluation()) {
    Report::Epoch& epoch = epochs[result.epoch()];
    epoch.number = result.epoch();
    epoch.evaluation = EvaluationOf(result);
  }
  for (auto& [number, epoch] : epochs) report.epochs.push_back(std::move(epoch));

  std::map<int, Report::Slot> slots;
  for (const SlotBooks& books : job.slot()) slots[books.slot()] = SlotOf(books);

  bool first = true;
  for (const ServerAnswer& answer : servers) {
    Report::Server server =
        ServerOf(static_cast<int>(report.servers.size()), answer, report.wall_seconds);
    if (answer.status.ok()) {
      Add(server.verdicts, &report.blocks);
      Merge(answer.status->lag(), report.lag);
      Merge(answer.status->clock_gap(), report.clock_gap);
      // A server of a model with fewer blocks than servers owns none and has no versions.
      if (server.blocks > 0) {
        report.min_version =
            first ? server.min_version : std::min(report.min_version, server.min_version);
        report.max_version =
            first ? server.max_version : std::max(report.max_version, server.max_version);
        first = false;
      }
      for (const SlotStatus& status : answer.status->slot()) {
        const auto found = slots.find(status.slot());
        if (found != slots.end()) found->second.parked_pulls += status.parked_pulls();
      }
    }
    report.servers.push_back(std::move(server));
  }
  Finish(report.lag);
  Finish(report.clock_gap);

  for (auto& [number, slot] : slots) {
    report.samples += slot.samples;
    report.pushes += slot.steps;
    report.rolled_back_pushes += slot.rolled_back_pushes;
    report.rolled_back_blocks += slot.rolled_back_blocks;
    report.slots.push_back(std::move(slot));
  }
  if (report.wall_seconds > 0) {
    report.samples_per_second = static_cast<double>(report.samples) / report.wall_seconds;
  }
  CheckAll(report);
  return report;
}

std::string DescribeConsistency(const ConsistencySpec& spec) {
  if (spec.mode() == ConsistencySpec::SYNC) {
    return spec.backup_workers() == 0
               ? "synchronous"
               : absl::StrCat("synchronous, ", Count(spec.backup_workers(), "backup worker"));
  }
  std::string text = spec.staleness_bound() < 0
                         ? "asynchronous, no staleness bound"
                         : absl::StrCat("asynchronous, staleness bound ", spec.staleness_bound());
  switch (spec.lag().policy()) {
    case LagContract::SCALE:
      absl::StrAppend(&text, ", scaled beyond lag ", spec.lag().free_lag());
      break;
    case LagContract::REJECT:
      absl::StrAppend(&text, ", rejected beyond lag ", spec.lag().max_lag());
      break;
    default:
      break;
  }
  return text;
}

std::string StateName(SlotBooks::State state) {
  return absl::AsciiStrToLower(SlotBooks::State_Name(state));
}

std::string PhaseName(JobStatus::Phase phase) {
  return absl::AsciiStrToLower(JobStatus::Phase_Name(phase));
}

}  // namespace torchps
