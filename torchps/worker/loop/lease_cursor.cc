#include "torchps/worker/loop/lease_cursor.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "torchps/common/sample_order.h"

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

LeaseCursor::LeaseCursor(uint64_t seed, int64_t samples, bool shuffle)
    : epoch_samples_(samples), positions_(seed, samples, shuffle) {}

absl::Status LeaseCursor::Start(const DataLease& lease) {
  lease_.reset();
  taken_ = 0;
  taken_before_ = 0;
  samples_ = positions_.Samples(lease.epoch(), lease.begin(), lease.end());
  if (samples_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the coordinator handed out positions ", lease.begin(), " to ", lease.end(), " of epoch ",
        lease.epoch(), ", but this worker has ", epoch_samples_, " training samples"));
  }
  lease_ = lease;
  return absl::OkStatus();
}

uint64_t LeaseCursor::Finish() {
  const uint64_t id = lease_->id();
  lease_.reset();
  return id;
}

StepWork LeaseCursor::Next(int64_t most) {
  const auto progress_at = [this](size_t taken) {
    const double part = static_cast<double>(taken) / static_cast<double>(samples_.size());
    return lease_->progress_begin() + part * (lease_->progress_end() - lease_->progress_begin());
  };
  StepWork step;
  step.samples = samples_.subspan(taken_, static_cast<size_t>(most));
  step.epoch = lease_->epoch();
  step.position = lease_->begin() + static_cast<int64_t>(taken_);
  taken_before_ = taken_;
  taken_ += step.samples.size();
  step.upcoming = samples_.subspan(taken_);
  step.progress_begin = progress_at(taken_before_);
  step.progress_end = progress_at(taken_);
  return step;
}

LeaseRange LeaseCursor::part() const {
  LeaseRange part;
  part.set_begin(static_cast<int64_t>(taken_before_));
  part.set_end(static_cast<int64_t>(taken_));
  return part;
}

}  // namespace torchps
