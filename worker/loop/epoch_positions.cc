#include "worker/loop/epoch_positions.h"

#include <numeric>

#include "common/sample_order.h"

namespace torchps {

absl::Span<const int64_t> EpochPositions::Samples(int epoch, int64_t begin, int64_t end) {
  if (epoch < 1 || begin < 0 || begin > end || end > samples_) return {};
  if (epoch != epoch_) {
    if (shuffle_) {
      order_ = EpochOrder(seed_, epoch, samples_);
    } else if (order_.empty()) {
      order_.resize(samples_);
      std::iota(order_.begin(), order_.end(), int64_t{0});
    }
    epoch_ = epoch;
  }
  return absl::MakeConstSpan(order_).subspan(begin, end - begin);
}

}  // namespace torchps
