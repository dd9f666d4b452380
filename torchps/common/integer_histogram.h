#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace torchps {

// Histogram of small non-negative integers, such as lags and differences between a clock and the
// min clock. Counts are exact up to kBuckets - 2; the last bucket counts larger values. Not
// thread-safe.
class IntegerHistogram {
 public:
  static constexpr int kBuckets = 65;

  // Counts a negative value as 0.
  void Add(int64_t value) {
    value = std::max<int64_t>(value, 0);
    ++buckets_[std::min<int64_t>(value, kBuckets - 1)];
    max_ = std::max(max_, value);
    sum_ += static_cast<double>(value);
    ++count_;
  }

  const std::array<uint64_t, kBuckets>& buckets() const { return buckets_; }
  int64_t max() const { return max_; }
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::array<uint64_t, kBuckets> buckets_{};
  int64_t max_ = 0;
  double sum_ = 0;
  uint64_t count_ = 0;
};

}  // namespace torchps
