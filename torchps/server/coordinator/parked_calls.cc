#include "torchps/server/coordinator/parked_calls.h"

#include <algorithm>

namespace torchps {

void ParkedCalls::Cancel(Id call) {
  const auto drop_of_slot = [call](auto& calls) {
    for (auto it = calls.parked_.begin(); it != calls.parked_.end(); ++it) {
      if (it->second.id != call) continue;
      calls.parked_.erase(it);
      return;
    }
  };
  const auto drop = [call](auto& calls) {
    calls.parked_.erase(std::remove_if(calls.parked_.begin(), calls.parked_.end(),
                                       [call](const auto& one) { return one.id == call; }),
                        calls.parked_.end());
  };
  drop_of_slot(starts);
  drop_of_slot(works);
  drop(statuses);
  drop(for_this_checkpoint);
  drop(for_next_checkpoint);
}

void ParkedCalls::Abandon(const absl::Status& status) {
  while (!starts.parked_.empty()) starts.Answer(starts.parked_.begin()->first, status);
  while (!works.parked_.empty()) works.Answer(works.parked_.begin()->first, status);
  statuses.Answer(status);
  for_this_checkpoint.Answer(status);
  for_next_checkpoint.Answer(status);
}

}  // namespace torchps
