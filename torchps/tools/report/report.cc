#include "torchps/tools/report/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/process/version.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/tools/report/report_checks.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/transport/evaluation_score.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// The metric that has its own fields in the report, besides the list of metrics.
constexpr char kAccuracy[] = "accuracy";

// Returns 0 if `whole` is 0.
double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

Report::Consistency GetConsistency(const ConsistencySpec& spec) {
  Report::Consistency consistency;
  consistency.set_mode(spec.mode());
  if (!HasRounds(spec)) consistency.set_apply(spec.apply());
  consistency.set_staleness_bound(spec.staleness_bound());
  consistency.set_backup_workers(spec.backup_workers());
  consistency.set_lag_policy(spec.lag().policy());
  consistency.set_free_lag(spec.lag().free_lag());
  consistency.set_max_lag(spec.lag().max_lag());
  return consistency;
}

// Returns the times in units of `unit` seconds.
Report::Times GetTimes(const StepFigures& figures, double unit) {
  Report::Times times;
  times.set_compute(figures.compute_seconds() / unit);
  times.set_push(figures.push_seconds() / unit);
  times.set_pull(figures.pull_seconds() / unit);
  times.set_wait(figures.wait_seconds() / unit);
  times.set_data(figures.data_seconds() / unit);
  times.set_other(figures.other_seconds() / unit);
  return times;
}

// Returns NaN if the slot used samples but does not know any of their losses.
double MeanLoss(const StepFigures& figures) {
  const uint64_t known =
      figures.samples() - std::min(figures.samples(), figures.samples_without_loss());
  if (known == 0 && figures.samples() > 0) return std::numeric_limits<double>::quiet_NaN();
  return Ratio(figures.loss_sum(), static_cast<double>(known));
}

Report::Slot GetSlot(const SlotAccounting& accounting, const StepFigures& figures) {
  Report::Slot slot;
  slot.set_slot(accounting.slot());
  slot.set_incarnation(accounting.incarnation());
  slot.set_host(accounting.host());
  slot.set_device(accounting.device());
  *slot.mutable_members() = accounting.member();
  slot.set_state(StateName(accounting.state()));
  slot.set_reason(accounting.reason());
  slot.set_steps(figures.pushes());
  slot.set_samples(figures.samples());
  slot.set_mean_loss(MeanLoss(figures));
  slot.set_rejected_pushes(figures.rejected_pushes());
  slot.set_skipped_nonfinite(figures.skipped_nonfinite());
  if (figures.overflows() > 0) slot.set_overflows(static_cast<int64_t>(figures.overflows()));
  slot.set_batch_size(accounting.batch_size());
  slot.set_lost_samples(static_cast<int64_t>(figures.lost_samples()));
  slot.set_stopped_steps(static_cast<int64_t>(figures.stopped_steps()));
  *slot.mutable_seconds() = GetTimes(figures, 1);
  // If the total time is 0, divides by infinity, so that all shares are 0.
  const double total = TotalSeconds(figures);
  *slot.mutable_shares() =
      GetTimes(figures, total > 0 ? total : std::numeric_limits<double>::infinity());
  if (figures.rolled_back_pushes() > 0) {
    slot.mutable_rolled_back()->set_pushes(figures.rolled_back_pushes());
    slot.mutable_rolled_back()->set_blocks(figures.rolled_back_blocks());
  }
  return slot;
}

Report::Server GetServer(int index, const ServerAnswer& answer, double job_seconds) {
  Report::Server server;
  server.set_index(index);
  server.set_address(answer.address);
  if (!answer.status.ok()) {
    server.set_error(std::string(answer.status.status().message()));
    return server;
  }
  const ServerStatus& status = *answer.status;
  server.set_blocks(status.blocks());
  server.set_state_bytes(status.state_bytes());
  server.mutable_versions()->set_min(status.min_version());
  server.mutable_versions()->set_max(status.max_version());
  server.set_bytes_in(status.bytes_in());
  server.set_bytes_out(status.bytes_out());
  server.set_uptime_seconds(status.uptime_ms() / 1000.0);
  // Servers start before the job, so a shorter uptime means a restart.
  const uint64_t restored = status.durability().restored_checkpoint();
  if (restored > 0 || status.durability().replayed() > 0 || server.uptime_seconds() < job_seconds) {
    server.set_came_back(true);
    server.set_restored_checkpoint(restored);
  }
  *server.mutable_pushed_blocks()->mutable_verdicts() = status.verdicts();
  server.mutable_pushed_blocks()->set_applied(Applied(status.verdicts()));
  return server;
}

// Adds the histogram of one server to `whole`. `mean` holds the sum of the values until Finish().
void Merge(const Histogram& part, Report::Distribution& whole) {
  while (whole.histogram_size() < part.bucket_size()) whole.add_histogram(0);
  for (int i = 0; i < part.bucket_size(); ++i) {
    whole.set_histogram(i, whole.histogram(i) + static_cast<int64_t>(part.bucket(i)));
  }
  if (part.count() > 0) {
    whole.set_max(whole.count() > 0 ? std::max(whole.max(), part.max()) : part.max());
  }
  whole.set_count(whole.count() + static_cast<int64_t>(part.count()));
  whole.set_mean(whole.mean() + part.sum());
}

void Finish(Report::Distribution& whole) {
  whole.set_last_bucket_is_open(whole.count() > 0 && whole.max() >= whole.histogram_size());
  auto& histogram = *whole.mutable_histogram();
  while (!histogram.empty() && *histogram.rbegin() == 0) histogram.RemoveLast();
  whole.set_mean(Ratio(whole.mean(), static_cast<double>(whole.count())));
}

Report::Evaluation GetEvaluation(const EvaluationResult& result) {
  Report::Evaluation evaluation;
  evaluation.set_samples(result.samples());
  if (const MetricValue* accuracy = FindMetric(result, kAccuracy)) {
    evaluation.set_accuracy(accuracy->value());
  }
  *evaluation.mutable_metrics() = result.metric();
  evaluation.set_loss(result.loss());
  evaluation.set_seconds(result.seconds());
  evaluation.set_at_seconds(result.at_seconds());
  return evaluation;
}

// Adds the epochs in order. The last evaluation is also the result.
void AddEpochs(const JobStatus& job, Report& report) {
  std::map<int, Report::Epoch> epochs;
  for (const EpochAccounting& accounting : job.epoch())
    *epochs[accounting.epoch()].mutable_accounting() = accounting;
  std::map<int, EvaluationResult> evaluations;
  for (const EvaluationResult& evaluation : job.evaluation()) {
    report.clear_model_not_kept();
    if (!evaluation.model_not_kept().empty()) {
      report.set_model_not_kept(evaluation.model_not_kept());
    }
    // Without test samples, an evaluation only delivers the model.
    if (evaluation.samples() == 0) continue;
    evaluations[evaluation.epoch()] = evaluation;
    Report::Epoch& epoch = epochs[evaluation.epoch()];
    epoch.mutable_accounting()->set_epoch(evaluation.epoch());
    *epoch.mutable_test() = GetEvaluation(evaluation);
  }
  for (const auto& [number, epoch] : epochs) *report.add_epochs() = epoch;
  std::optional<double> best;
  for (const auto& [number, evaluation] : evaluations) {
    Report::Result& result = *report.mutable_result();
    result.set_epoch(number);
    result.set_loss(evaluation.loss());
    *result.mutable_metrics() = evaluation.metric();
    const MetricValue* const accuracy = FindMetric(evaluation, kAccuracy);
    result.clear_accuracy();
    if (accuracy != nullptr) result.set_accuracy(accuracy->value());
    const std::string& best_by = job.job().training().best_by();
    const bool by_loss = best_by.empty() && evaluation.metric().empty();
    result.set_best_by(by_loss ? "loss" : best_by.empty() ? evaluation.metric(0).name() : best_by);
    const std::optional<double> score = GetScore(evaluation, best_by);
    if (score <= best) continue;
    best = score;
    result.set_best_epoch(number);
    result.set_best_loss(evaluation.loss());
    *result.mutable_best_metrics() = evaluation.metric();
    if (accuracy != nullptr) result.set_best_accuracy(accuracy->value());
  }
}

// Returns the reason why training failed, or "".
std::string GetFailure(const Report& report) {
  if (!report.stopped().empty()) return report.stopped();
  if (report.has_result() && !std::isfinite(report.result().loss())) {
    return absl::StrCat("the test loss after epoch ", report.result().epoch(), " is ",
                        report.result().loss(), "; a smaller optimizer.learning_rate or ",
                        "training.clip_norm may help");
  }
  // A cross entropy this large gives the correct class a probability of e^-1000.
  constexpr double kMaxCrossEntropy = 1000;
  const bool is_built_in = !report.job().model().name().empty();
  if (is_built_in && report.result().has_accuracy() && report.result().loss() > kMaxCrossEntropy) {
    return absl::StrFormat(
        "it has diverged: the test loss after epoch %d is %.3g; a smaller "
        "optimizer.learning_rate or training.clip_norm may help",
        report.result().epoch(), report.result().loss());
  }
  if (report.has_model_not_kept()) {
    return absl::StrCat("its model was not saved: ", report.model_not_kept());
  }
  return "";
}

void AddSlots(const JobStatus& job, const std::vector<ServerAnswer>& servers, Report& report) {
  std::map<int, Report::Slot> slots;
  for (const SlotAccounting& accounting : job.slot()) {
    slots[accounting.slot()] =
        GetSlot(accounting, GetFigures(accounting, job.job().consistency(), servers));
  }
  for (const ServerAnswer& answer : servers) {
    if (!answer.status.ok()) continue;
    for (const SlotStatus& status : answer.status->slot()) {
      const auto found = slots.find(status.slot());
      if (found == slots.end()) continue;
      Report::Slot& slot = found->second;
      slot.set_parked_pulls(slot.parked_pulls() + static_cast<int64_t>(status.parked_pulls()));
    }
  }
  for (const auto& [number, slot] : slots) {
    *report.add_slots() = slot;
    report.set_samples(report.samples() + slot.samples());
    report.set_steps(report.steps() + slot.steps());
    if (slot.has_rolled_back()) {
      Report::RolledBack& all = *report.mutable_rolled_back();
      all.set_pushes(all.pushes() + slot.rolled_back().pushes());
      all.set_blocks(all.blocks() + slot.rolled_back().blocks());
    }
  }
  report.set_samples_per_second(
      Ratio(static_cast<double>(report.samples()), report.wall_seconds()));
}

void AddServers(const std::vector<ServerAnswer>& servers, Report& report) {
  VerdictCounts& verdicts = *report.mutable_pushed_blocks()->mutable_verdicts();
  Report::Versions& versions = *report.mutable_versions();
  bool first = true;
  for (const ServerAnswer& answer : servers) {
    Report::Server& server = *report.add_servers();
    server = GetServer(report.servers_size() - 1, answer, report.wall_seconds());
    if (!answer.status.ok()) continue;
    Add(answer.status->verdicts(), &verdicts);
    Merge(answer.status->lag(), *report.mutable_lag());
    Merge(answer.status->clock_gap(), *report.mutable_clock_gap());
    // If the model contains fewer blocks than servers, some servers hold no blocks and thus report
    // no versions.
    if (server.blocks() == 0) continue;
    const Report::Versions& own = server.versions();
    versions.set_min(first ? own.min() : std::min(versions.min(), own.min()));
    versions.set_max(first ? own.max() : std::max(versions.max(), own.max()));
    first = false;
  }
  report.mutable_pushed_blocks()->set_applied(Applied(verdicts));
  Finish(*report.mutable_lag());
  Finish(*report.mutable_clock_gap());
}

// Returns the count per block, rounded; at least 1 unless `count` is 0.
int64_t PerBlock(int64_t count, int64_t blocks) {
  return count == 0 ? 0 : std::max<int64_t>(1, (count + blocks / 2) / blocks);
}

}  // namespace

Report BuildReport(const JobStatus& job, const std::vector<ServerAnswer>& servers) {
  Report report;
  report.set_schema(1);
  report.set_version(std::string(ReleaseVersion()));
  if (!ReleaseCommit().empty()) report.set_commit(std::string(ReleaseCommit()));
  report.set_name(job.job().name());
  report.set_job_id(absl::StrFormat("%016x", job.job_id()));
  report.set_phase(PhaseName(job.phase()));
  report.set_wall_seconds(job.running_seconds());
  report.set_parameters(job.parameters());
  *report.mutable_consistency() = GetConsistency(job.job().consistency());
  if (job.checkpoint().enabled()) *report.mutable_checkpoint() = job.checkpoint();
  if (job.resumed_checkpoint() > 0) report.set_resumed_checkpoint(job.resumed_checkpoint());
  if (job.epochs_without_best() > 0) report.set_epochs_without_best(job.epochs_without_best());
  if (!job.stopped().empty()) report.set_stopped(job.stopped());
  *report.mutable_job() = job.job();
  AddEpochs(job, report);
  report.set_model(job.model());
  report.set_data(job.data());
  const std::string failure = GetFailure(report);
  if (!failure.empty()) report.set_failed(failure);
  report.set_finished(job.phase() == JobStatus::DONE && failure.empty());
  AddSlots(job, servers, report);
  AddServers(servers, report);
  if (auto updates = GetUpdates(job.job().consistency(), servers)) {
    *report.mutable_updates() = *std::move(updates);
  }
  CheckReport(job, servers, report);
  return report;
}

std::optional<Report::Updates> GetUpdates(const ConsistencySpec& consistency,
                                          const std::vector<ServerAnswer>& servers) {
  if (HasRounds(consistency) || AppliesEachPush(consistency)) return std::nullopt;
  Report::Updates updates;
  Report::Distribution lag;
  int64_t blocks = 0, early = 0, refused = 0;
  for (const ServerAnswer& answer : servers) {
    if (!answer.status.ok()) continue;
    const ServerStatus& status = *answer.status;
    blocks += static_cast<int64_t>(status.blocks());
    updates.set_made(std::max(updates.made(), status.max_version()));
    early += static_cast<int64_t>(status.early_block_updates());
    refused += static_cast<int64_t>(status.verdicts().rejected());
    Merge(status.lag(), lag);
    for (const SlotStatus& slot : status.slot()) {
      const double longest = slot.longest_push_wait_seconds();
      updates.set_longest_wait_seconds(std::max(updates.longest_wait_seconds(), longest));
      updates.set_longest_wait_steps(
          std::max(updates.longest_wait_steps(), Ratio(longest, slot.usual_step_seconds())));
    }
  }
  if (blocks == 0) return std::nullopt;
  updates.set_early(PerBlock(early, blocks));
  updates.set_refused(PerBlock(refused, blocks));
  Finish(lag);
  // Entry 0 gets the remainder, so that the rounded counts match the total.
  int64_t newest = PerBlock(lag.count(), blocks);
  for (const int64_t count : lag.histogram()) updates.add_by_age(PerBlock(count, blocks));
  for (int age = 1; age < updates.by_age_size(); ++age) newest -= updates.by_age(age);
  if (newest > 0) updates.set_by_age(0, newest);
  return updates;
}

StepFigures GetFigures(const SlotAccounting& slot, const ConsistencySpec& consistency,
                       const std::vector<ServerAnswer>& servers) {
  StepFigures figures = slot.figures();
  if (AppliesEachPush(consistency)) return figures;
  // The servers hold the parts of a push at the same time, so the slot waits for the longest wait,
  // not the sum.
  double waited = 0;
  for (const ServerAnswer& answer : servers) {
    if (!answer.status.ok()) continue;
    for (const SlotStatus& status : answer.status->slot()) {
      if (status.slot() == slot.slot()) waited = std::max(waited, status.push_wait_seconds());
    }
  }
  waited = std::min(waited, figures.push_seconds());
  figures.set_push_seconds(figures.push_seconds() - waited);
  figures.set_wait_seconds(figures.wait_seconds() + waited);
  return figures;
}

double TotalSeconds(const StepFigures& figures) {
  return figures.compute_seconds() + figures.push_seconds() + figures.pull_seconds() +
         figures.wait_seconds() + figures.data_seconds() + figures.other_seconds();
}

}  // namespace torchps
