#include "worker/loop/progress.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace torchps {

Progress::Progress(SlotId slot, absl::Duration interval, absl::Duration now)
    : slot_(slot), interval_(interval), since_(now) {}

void Progress::Add(int64_t samples, double loss_sum, absl::Duration waited) {
  samples_ += samples;
  if (std::isfinite(loss_sum)) {
    loss_sum_ += loss_sum;
    loss_samples_ += samples;
  }
  waited_ += waited;
}

std::string Progress::Line(int epoch, Step step, absl::Duration now) {
  const double seconds = absl::ToDoubleSeconds(now - since_);
  if (now - since_ < interval_ || samples_ == 0 || seconds <= 0) return "";
  const double loss = loss_samples_ > 0 ? loss_sum_ / static_cast<double>(loss_samples_)
                                        : std::numeric_limits<double>::quiet_NaN();
  std::string line = absl::StrFormat(
      "torchps_worker progress slot=%d epoch=%d step=%d loss=%.4f accuracy=- samples_per_s=%.0f "
      "wait_share=%.2f",
      slot_, epoch, step, loss, static_cast<double>(samples_) / seconds,
      absl::ToDoubleSeconds(waited_) / seconds);
  since_ = now;
  samples_ = 0;
  loss_samples_ = 0;
  loss_sum_ = 0;
  waited_ = absl::ZeroDuration();
  return line;
}

}  // namespace torchps
