#include "torchps/client/rollback_accounting.h"

#include <algorithm>
#include <utility>

namespace torchps {

RollbackAccounting::Lost& RollbackAccounting::Lost::operator+=(const Lost& other) {
  if (other.first_step != 0) {
    first_step = first_step == 0 ? other.first_step : std::min(first_step, other.first_step);
  }
  blocks += other.blocks;
  pushes += other.pushes;
  return *this;
}

void RollbackAccounting::Applied(BlockId block, Step step, bool by_former_boot) {
  MutexLock lock(&mutex_);
  if (by_former_boot && step > kept_[block]) {
    Lose(block, {{step, step}});
  } else {
    applied_[block].Add({step, step});
  }
}

RollbackAccounting::Lost RollbackAccounting::RollBack(BlockId block, Step last_step) {
  MutexLock lock(&mutex_);
  kept_[block] = last_step;
  return Lose(block, applied_[block].TakeAbove(last_step));
}

void RollbackAccounting::AddLost(const Lost& lost) {
  MutexLock lock(&mutex_);
  untold_ += lost;
}

RollbackAccounting::Lost RollbackAccounting::TakeLost() {
  MutexLock lock(&mutex_);
  return std::exchange(untold_, {});
}

RollbackAccounting::Lost RollbackAccounting::Lose(BlockId block,
                                                  const std::vector<StepSet::Run>& runs) {
  Lost lost;
  for (const StepSet::Run& run : runs) {
    Lost more;
    more.blocks = static_cast<uint64_t>(run.last - run.first + 1);
    more.pushes = lost_steps_.Add(run);
    more.first_step = run.first;
    lost += more;
    if (listener_ != nullptr) listener_(block, run);
  }
  untold_ += lost;
  return lost;
}

}  // namespace torchps
