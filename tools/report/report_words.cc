#include "tools/report/report_words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/process/exit_codes.h"
#include "job/update_rule.h"
#include "tools/base/format.h"

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

}  // namespace torchps
