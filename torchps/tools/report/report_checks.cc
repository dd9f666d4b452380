#include "torchps/tools/report/report_checks.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <limits>

#include "torchps/job/consistency_fields.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// A reason not to judge a comparison. Ignored unless `applies`.
struct Doubt {
  bool applies;
  const char* reason;
};

// Records the two numbers of a comparison. Also records whether it `holds`, or the first doubt that
// applies, if any.
void Judge(bool holds, int64_t expected, int64_t actual, const std::vector<Doubt>& doubts,
           Report::Check* check) {
  check->set_expected(expected);
  check->set_actual(actual);
  const auto doubt = std::find_if(doubts.begin(), doubts.end(), [](auto& d) { return d.applies; });
  if (doubt == doubts.end()) {
    check->set_holds(holds);
  } else {
    check->set_not_judged(doubt->reason);
  }
}

void Equal(int64_t expected, int64_t actual, const std::vector<Doubt>& doubts,
           Report::Check* check) {
  Judge(actual == expected, expected, actual, doubts, check);
}

void AtMost(int64_t bound, int64_t actual, const std::vector<Doubt>& doubts, Report::Check* check) {
  Judge(actual <= bound, bound, actual, doubts, check);
}

void AtLeast(int64_t bound, int64_t actual, const std::vector<Doubt>& doubts,
             Report::Check* check) {
  Judge(actual >= bound, bound, actual, doubts, check);
}

// Returns true if the test set is empty: evaluations delivered models without measuring them.
bool NothingToTestOn(const JobStatus& job) {
  return !job.evaluation().empty() &&
         std::all_of(job.evaluation().begin(), job.evaluation().end(),
                     [](const EvaluationResult& result) { return result.samples() == 0; });
}

// Returns the number of the slot's gradients that every block of every answering server has.
int64_t LeastApplied(int slot, const std::vector<ServerAnswer>& servers) {
  uint64_t least = std::numeric_limits<int64_t>::max();
  for (const ServerAnswer& server : servers) {
    if (!server.status.ok() || server.status->blocks() == 0) continue;
    const auto& applied = server.status->least_applied();
    const auto found = applied.find(slot);
    least = found == applied.end() ? 0 : std::min(least, found->second);
  }
  return static_cast<int64_t>(least);
}

}  // namespace

void CheckReport(const JobStatus& job, const std::vector<ServerAnswer>& servers, Report& report) {
  const ConsistencySpec& consistency = report.job().consistency();
  const TrainingSpec& training = report.job().training();
  const VerdictCounts& verdicts = report.pushed_blocks().verdicts();
  const int64_t steps = report.steps();
  const int64_t judged_blocks = static_cast<int64_t>(Verdicts(verdicts));
  const Report::RolledBack& lost = report.rolled_back();

  int64_t used = 0, evaluated = 0, samples_per_epoch = 0;
  bool any_reissued = false;
  for (const Report::Epoch& epoch : report.epochs()) {
    used += epoch.accounting().used();
    evaluated += epoch.has_test() ? 1 : 0;
    samples_per_epoch = std::max(samples_per_epoch, epoch.accounting().samples());
    any_reissued = any_reissued || epoch.accounting().reissued() > epoch.accounting().lost();
  }
  // The block versions add up to `versions` if each server's versions are equal (`even`), and
  // otherwise to a number from `least_versions` to `versions`.
  int64_t blocks = 0, least_versions = 0, versions = 0;
  bool any_silent = false, any_came_back = false, even = true;
  for (const Report::Server& server : report.servers()) {
    blocks += server.blocks();
    least_versions += server.blocks() * server.versions().min();
    versions += server.blocks() * server.versions().max();
    any_silent = any_silent || server.has_error();
    any_came_back = any_came_back || server.came_back();
    even = even && server.versions().min() == server.versions().max();
  }
  int64_t block_updates = 0;
  bool any_jobless = false;
  for (const ServerAnswer& server : servers) {
    if (!server.status.ok()) continue;
    block_updates += static_cast<int64_t>(server.status->block_updates());
    any_jobless = any_jobless || server.status->job_id() == 0;
  }
  // Gradients that servers acknowledged and did not report as rolled back, and those among them
  // that are in every block. A process that died has pushed more than the slot's figures tell.
  int64_t acknowledged = 0, kept = 0;
  for (const Report::Slot& slot : report.slots()) {
    const int64_t least =
        std::max<int64_t>(0, slot.steps() - slot.rejected_pushes() - slot.rolled_back().pushes());
    acknowledged += least;
    kept += std::min(least, LeastApplied(slot.slot(), servers));
  }
  const bool any_gone = std::any_of(
      report.slots().begin(), report.slots().end(),
      [](const Report::Slot& slot) { return slot.state() == "expired" || slot.state() == "left"; });

  const bool sync = HasRounds(consistency);
  const bool each_push = AppliesEachPush(consistency);
  const bool rejects = consistency.lag().policy() == LagContract::REJECT;
  const Doubt cut_short = {!report.finished(), "the job has not finished"};
  const Doubt limited = {training.max_pushes() > 0, "max_pushes ends the job before its epochs do"};
  const Doubt stopped = {report.has_epochs_without_best(), "the job stopped early"};
  const Doubt silent = {any_silent, "a server did not answer"};
  // The figures of a dead process's last steps are lost, and the coordinator issued the samples
  // again.
  const Doubt died = {any_gone || any_reissued,
                      "a worker ended early, so the figures of its last steps are lost"};
  const Doubt resumed = {report.resumed_checkpoint() > 0, "the job was resumed from a checkpoint"};
  const Doubt came_back = {any_came_back, "a restarted server has counted only since its restart"};

  Report::Reconciles& checks = *report.mutable_reconciles();
  Equal(int64_t{training.epochs()} * samples_per_epoch, used, {cut_short, limited, stopped},
        checks.mutable_samples_used());
  Equal(used, report.samples(), {cut_short, died, resumed}, checks.mutable_slot_samples());
  Equal(training.evaluate() && !NothingToTestOn(job) ? training.epochs() : 0, evaluated,
        {cut_short, limited, stopped}, checks.mutable_evaluations());
  const std::vector<Doubt> of_blocks = {silent, cut_short, died, resumed, came_back};
  Equal(steps * blocks, judged_blocks, of_blocks, checks.mutable_pushed_blocks());
  Equal(judged_blocks, static_cast<int64_t>(verdicts.acknowledged()), of_blocks,
        checks.mutable_acknowledged_blocks());
  const bool has_log = report.job().durability().level() == DurabilitySpec::LOG;
  AtLeast(acknowledged, kept,
          {silent,
           resumed,
           {any_jobless, "a restarted server does not know the job yet"},
           {any_came_back && !has_log,
            "a server restarted without a push log, and workers may report its losses later"},
           {report.has_rolled_back() && died.applies,
            "a server lost pushes, and a worker that could report them has ended"}},
          checks.mutable_kept_gradients());
  Equal(report.pushed_blocks().applied(), report.lag().count(), {silent},
        checks.mutable_lag_counted());

  // A push raises each block's version by one. Each push lost by a server lowers it by one on the
  // affected blocks.
  std::vector<Doubt> of_versions = {silent,
                                    {!each_push, "an update combines several pushes"},
                                    {NotApplied(verdicts) > 0, "some blocks were not applied"},
                                    {rejects && any_came_back, came_back.reason},
                                    cut_short,
                                    died,
                                    resumed};
  const Report::Versions& reached = report.versions();
  if (!report.has_rolled_back()) {
    Equal(steps, reached.min(), of_versions, checks.mutable_min_version());
    Equal(steps, reached.max(), of_versions, checks.mutable_max_version());
  } else {
    AtLeast(steps - lost.pushes(), reached.min(), of_versions, checks.mutable_min_version());
    AtMost(steps, reached.max(), of_versions, checks.mutable_max_version());
    of_versions.insert(of_versions.begin(), {!even, "a server's blocks are at different versions"});
    Equal(steps * blocks - lost.blocks(), versions, of_versions, checks.mutable_kept_blocks());
  }
  Equal(reached.max(), reached.min(),
        {silent,
         {!sync, "ASYNC has no rounds"},
         {report.has_rolled_back(), "a restarted server has skipped the rounds that it lost"},
         cut_short},
        checks.mutable_rounds());
  AtMost(consistency.staleness_bound(), report.clock_gap().max(),
         {silent,
          {sync, "SYNC has no staleness bound"},
          {!each_push, "the staleness bound is in updates, not in steps"},
          {consistency.staleness_bound() < 0, "there is no staleness bound"}},
         checks.mutable_clock_gap());
  const int64_t largest_lag = LargestLag(consistency);
  if (largest_lag == std::numeric_limits<int64_t>::max()) {
    Judge(true, -1, report.lag().max(), {}, checks.mutable_lag());
    checks.mutable_lag()->set_note("no bound");
  } else {
    // An old gradient on one server is an error even if another server did not answer.
    AtMost(largest_lag, report.lag().max(),
           {{any_silent && report.lag().max() <= largest_lag, silent.reason}},
           checks.mutable_lag());
  }
  if (report.has_updates()) {
    Equal(std::clamp(block_updates, least_versions, versions), block_updates,
          {cut_short, resumed, came_back}, checks.mutable_updates());
  }

  const auto all = GetChecks(report);
  checks.set_all(std::none_of(all.begin(), all.end(), [](const auto& named) {
    return named.second.has_holds() && !named.second.holds();
  }));
}

std::vector<std::pair<std::string, Report::Check>> GetChecks(const Report& report) {
  const Report::Reconciles& reconciles = report.reconciles();
  const google::protobuf::Reflection& reflection = *Report::Reconciles::GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(reconciles, &fields);
  std::vector<std::pair<std::string, Report::Check>> checks;
  for (const google::protobuf::FieldDescriptor* const field : fields) {
    if (field->message_type() != Report::Check::descriptor()) continue;
    Report::Check check;
    check.CopyFrom(reflection.GetMessage(reconciles, field));
    checks.emplace_back(field->name(), std::move(check));
  }
  return checks;
}

}  // namespace torchps
