#include "torchps/worker/pipeline/leader.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "torchps/transport/status_codec.h"
#include "torchps/worker/evaluation.h"

namespace torchps {

void ReplicaLeader::Order(const ReplicaOrder& order) {
  ++orders_;
  for (int stage = 1; stage < options_.exchange->stages(); ++stage) {
    TensorMessage parcel = Exchange::Of({TensorMessage::ORDER, orders_, 0});
    *parcel.mutable_order_text() = order;
    options_.exchange->Send(stage, std::move(parcel));
  }
}

absl::Status ReplicaLeader::AwaitDone(PushResult* result) {
  for (int stage = 1; stage < options_.exchange->stages(); ++stage) {
    const absl::StatusOr<Exchange::Delivery> delivery =
        options_.exchange->Take(stage, {TensorMessage::DONE, orders_, 0});
    if (!delivery.ok()) return delivery.status();
    const ReplicaReport& report = delivery->parcel.report();
    Add(report.verdicts(), &result->verdicts);
    result->max_lag = std::max(result->max_lag, report.max_lag());
    RollbackAccounting::Lost lost;
    lost.blocks = report.rolled_back_blocks();
    lost.pushes = report.rolled_back_pushes();
    options_.parameters->AddRolledBack(lost);
  }
  return absl::OkStatus();
}

absl::Status ReplicaLeader::AwaitReady() {
  for (int stage = 1; stage < options_.exchange->stages(); ++stage) {
    const absl::Status ready =
        options_.exchange->Take(stage, {TensorMessage::READY, 0, 0}).status();
    if (!ready.ok()) return ready;
  }
  return absl::OkStatus();
}

absl::Status ReplicaLeader::OnInitialized() {
  ReplicaOrder order;
  order.set_task(ReplicaOrder::INITIALIZE);
  Order(order);
  PushResult nothing;
  return AwaitDone(&nothing);
}

absl::StatusOr<Learner::Gradient> ReplicaLeader::Compute(const StepWork& step,
                                                         Learner::Observer* observer) {
  ReplicaOrder order;
  order.set_task(ReplicaOrder::TRAIN);
  order.set_pull_clock(step.push_step - 1);
  order.set_push_step(step.push_step);
  order.mutable_sample()->Add(step.samples.begin(), step.samples.end());
  // Announces only as many batches as this process prepares ahead. The replica's other processes
  // prepare fewer of them if they have fewer loader threads.
  const size_t most = options_.work->ahead() * static_cast<size_t>(step.batch_size);
  const absl::Span<const int64_t> upcoming = step.upcoming.subspan(0, most);
  order.mutable_upcoming()->Add(upcoming.begin(), upcoming.end());
  order.set_batch_size(step.batch_size);
  order.set_micro_batches(options_.micro_batches);
  order.set_number(step.number);
  order.set_epoch(step.epoch);
  order.set_position(step.position);
  order.set_progress(step.progress);
  order.set_share(step.share);
  Order(order);
  const absl::StatusOr<StageWork::Gradient> own =
      options_.work->Train(orders_, order, [observer](absl::Duration compute_time) {
        return observer->BeforeGradientAndBlocks(compute_time);
      });
  if (!own.ok()) return own.status();
  Learner::Gradient gradient;
  gradient.samples = static_cast<int64_t>(step.samples.size());
  gradient.loss_sum = own->loss_sum;
  gradient.finite = own->finite;
  gradient.overflows = own->finite == Finite::kOverflow ? 1 : 0;
  gradient.absent = own->absent;
  gradient.data_time = own->data_time;
  gradient.compute_time = own->compute_time;
  return gradient;
}

absl::Status ReplicaLeader::FinishOthers(PushResult* result) { return AwaitDone(result); }

absl::Status ReplicaLeader::Evaluate(EvaluationResult* result) {
  ReplicaOrder order;
  order.set_task(ReplicaOrder::EVALUATE);
  Order(order);
  const absl::StatusOr<ReplicaReport> report = options_.work->Evaluate(orders_);
  if (!report.ok()) return report.status();
  PushResult nothing;
  if (absl::Status done = AwaitDone(&nothing); !done.ok()) return done;
  const std::vector<Metric>& metrics = options_.objective->metrics;
  if (report->samples() > 0 && report->metric_value_size() != static_cast<int>(metrics.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the replica's last stage measures ", report->metric_value_size(),
                     " metrics and its leader ", metrics.size(),
                     "; start all of its processes with the same program"));
  }
  Evaluation evaluation;
  evaluation.samples = report->samples();
  if (evaluation.samples == 0) return absl::OkStatus();
  evaluation.loss = report->loss_sum() / static_cast<double>(evaluation.samples);
  for (int i = 0; i < report->metric_value_size(); ++i) {
    const Metric& metric = metrics[static_cast<size_t>(i)];
    evaluation.metrics.push_back({metric.name, report->metric_value(i), metric.lower_is_better});
  }
  SetEvaluation(evaluation, result);
  return absl::OkStatus();
}

void ReplicaLeader::End() {
  ReplicaOrder order;
  order.set_task(ReplicaOrder::END);
  Order(order);
}

}  // namespace torchps
