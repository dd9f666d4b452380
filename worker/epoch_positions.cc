#include "worker/epoch_positions.h"

#include "common/sample_order.h"

namespace torchps {

absl::Span<const int64_t> EpochPositions::Samples(int epoch, int64_t begin, int64_t end) {
  if (epoch < 1 || begin < 0 || begin > end || end > samples_) return {};
  if (epoch != epoch_) {
    order_ = EpochOrder(seed_, epoch, samples_);
    epoch_ = epoch;
  }
  return absl::MakeConstSpan(order_).subspan(begin, end - begin);
}

}  // namespace torchps
