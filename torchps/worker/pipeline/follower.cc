#include "torchps/worker/pipeline/follower.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

void ReplicaFollower::Tell(MemberPhase phase, int64_t number) const {
  if (options_.on_phase != nullptr) options_.on_phase(phase, number);
}

absl::Status ReplicaFollower::Run() {
  options_.exchange->Send(0, Exchange::Of({TensorMessage::READY, 0, 0}));
  for (int64_t number = 1;; ++number) {
    const absl::StatusOr<Exchange::Delivery> delivery =
        options_.exchange->Take(0, {TensorMessage::ORDER, number, 0});
    if (!delivery.ok()) return delivery.status();
    const ReplicaOrder& order = delivery->parcel.order_text();
    TensorMessage done = Exchange::Of({TensorMessage::DONE, number, 0});
    switch (order.task()) {
      case ReplicaOrder::INITIALIZE: {
        const absl::Status pushed = options_.parameters->Initialize(options_.model->values());
        if (!pushed.ok()) return pushed;
        break;
      }
      case ReplicaOrder::TRAIN: {
        const absl::StatusOr<bool> pushed = Train(number, order, done.mutable_report());
        if (!pushed.ok()) return pushed.status();
        // The leader knows that there is no push, and does not wait for DONE.
        if (!*pushed) continue;
        break;
      }
      case ReplicaOrder::EVALUATE: {
        if (absl::Status pulled = Pull(/*clock=*/0, /*read_only=*/true); !pulled.ok())
          return pulled;
        const absl::Status measured = options_.work->Evaluate(number).status();
        if (!measured.ok()) return measured;
        break;
      }
      case ReplicaOrder::END:
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(absl::StrCat("the replica's leader ordered task ",
                                                       static_cast<int>(order.task()),
                                                       ", which this program does not know"));
    }
    options_.exchange->Send(0, std::move(done));
  }
}

absl::Status ReplicaFollower::Pull(int64_t clock, bool read_only) {
  const absl::Status pulled =
      options_.parameters->Pull(clock, read_only, options_.model->values(), &held_).status();
  return pulled.ok() ? options_.model->ToDevice() : pulled;
}

absl::StatusOr<bool> ReplicaFollower::Train(int64_t number, const ReplicaOrder& order,
                                            ReplicaReport* report) {
  Tell(MemberPhase::kPull, number);
  const absl::Status pulled = Pull(order.pull_clock(), /*read_only=*/false);
  if (!pulled.ok()) return pulled;
  absl::StatusOr<StageWork::Gradient> gradient =
      options_.work->Train(number, order, [](absl::Duration) { return absl::OkStatus(); });
  if (!gradient.ok()) return gradient.status();
  if (gradient->finite == Finite::kNo || gradient->finite == Finite::kOverflow) return false;
  Tell(MemberPhase::kComputed, number);
  FlatModel* const model = options_.model;
  const std::unique_ptr<PendingPush> push = options_.parameters->BeginPush(
      order.push_step(), order.sample_size(), model->gradients(), model->averaged(),
      model->values(), gradient->finite == Finite::kUnknown, order.progress(),
      /*is_finite=*/nullptr, order.share());
  push->AllReady(CallLoop::Urgency::kNow, std::move(gradient->absent));
  Tell(MemberPhase::kPush, number);
  const absl::StatusOr<PushResult> result = push->Finish();
  if (!result.ok()) return result.status();
  *report->mutable_verdicts() = result->verdicts;
  report->set_max_lag(result->max_lag);
  const RollbackAccounting::Lost lost = options_.parameters->TakeRolledBack();
  report->set_rolled_back_blocks(lost.blocks);
  report->set_rolled_back_pushes(lost.pushes);
  return true;
}

}  // namespace torchps
