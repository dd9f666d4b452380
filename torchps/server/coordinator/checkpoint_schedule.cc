#include "torchps/server/coordinator/checkpoint_schedule.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "torchps/common/check.h"

namespace torchps {

void CheckpointSchedule::Restore(Memory memory) {
  memory_ = std::move(memory);
  std::sort(memory_.kept.begin(), memory_.kept.end());
  if (!memory_.kept.empty()) {
    memory_.last_number = std::max(memory_.last_number, memory_.kept.back());
    newest_finite_ =
        memory_.status.nonfinite_blocks() == 0 ? memory_.kept.back() : memory_.kept.front();
  }
}

absl::Duration CheckpointSchedule::Interval() const {
  if (options_.interval <= absl::ZeroDuration()) return absl::InfiniteDuration();
  const int doublings = static_cast<int>(std::min<uint64_t>(memory_.last_number, 31)) - 1;
  return std::min(options_.interval,
                  options_.first_interval * (int64_t{1} << std::max(doublings, 0)));
}

void CheckpointSchedule::Start(absl::Duration now, int64_t steps) {
  if (started_) return;
  started_ = true;
  if (!automatic()) return;
  const bool first = memory_.kept.empty();
  due_at_ = first ? now : now + Interval();
  due_at_steps_ = options_.steps > 0 ? steps + options_.steps : std::numeric_limits<int64_t>::max();
}

void CheckpointSchedule::End(bool one_more) {
  if (ended_) return;
  ended_ = true;
  last_one_due_ = one_more && automatic();
}

bool CheckpointSchedule::Due(absl::Duration now, int64_t steps) const {
  if (!started_ || under_way_ != 0) return false;
  if (requested_) return true;
  if (now < not_before_) return false;
  if (ended_) return last_one_due_;
  if (hastened_) return true;
  if (!automatic()) return false;
  return now >= due_at_ || steps >= due_at_steps_;
}

uint64_t CheckpointSchedule::Begin(absl::Duration now, int64_t steps) {
  TPS_CHECK(Due(now, steps), "no checkpoint is due");
  requested_ = hastened_ = false;
  last_one_under_way_ = ended_;
  under_way_ = ++memory_.last_number;
  due_at_ = now + Interval();
  due_at_steps_ = options_.steps > 0 ? steps + options_.steps : std::numeric_limits<int64_t>::max();
  return under_way_;
}

std::vector<uint64_t> CheckpointSchedule::KeepList(bool finite) const {
  std::vector<uint64_t> keep = memory_.kept;
  keep.push_back(under_way_);
  const size_t most = static_cast<size_t>(std::max(options_.keep, 1));
  if (keep.size() > most) keep.erase(keep.begin(), keep.end() - static_cast<int64_t>(most));
  // The finite checkpoint is older than the others, so it is inserted first.
  if (!finite && newest_finite_ > 0 && newest_finite_ < keep.front()) {
    keep.insert(keep.begin(), newest_finite_);
  }
  return keep;
}

void CheckpointSchedule::Succeed(const CheckpointStatus& status, absl::Duration now) {
  TPS_CHECK(under_way_ != 0, "no checkpoint is running");
  const bool finite = status.nonfinite_blocks() == 0;
  memory_.kept = KeepList(finite);
  if (finite) newest_finite_ = under_way_;
  const uint64_t completed = memory_.status.completed() + 1;
  const uint64_t failed = memory_.status.failed();
  memory_.status = status;
  memory_.status.set_number(under_way_);
  memory_.status.set_completed(completed);
  memory_.status.set_failed(failed);
  memory_.status.clear_last_error();
  if (last_one_under_way_) last_one_due_ = false;
  under_way_ = 0;
  failures_in_a_row_ = 0;
  not_before_ = now;
}

void CheckpointSchedule::Fail(const absl::Status& error, absl::Duration now) {
  TPS_CHECK(under_way_ != 0, "no checkpoint is running");
  memory_.status.set_failed(memory_.status.failed() + 1);
  memory_.status.set_last_error(std::string(error.message()));
  under_way_ = 0;
  const absl::Duration pause = absl::Seconds(1) * (1 << std::min(failures_in_a_row_++, 20));
  not_before_ = now + std::min(options_.retry, pause);
  // Retry before the next regular time.
  due_at_ = std::min(due_at_, not_before_);
}

}  // namespace torchps
