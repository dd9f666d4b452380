#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "common/cpu/aligned_array.h"
#include "grpcpp/support/slice.h"

namespace torchps {

// Memory for the values of one block that is lent to the pull that sends them, instead of copied.
//
// Thread-compatible, but for loans, which end on any thread; kept alive by its loans. Invariant
// that its user keeps: while it is lent nothing writes to it (Block goes on in another buffer).
class ValueBuffer {
 public:
  // The values are whatever the memory held before. REQUIRES: `size` > 0.
  explicit ValueBuffer(size_t size);
  ValueBuffer(const ValueBuffer&) = delete;
  ValueBuffer& operator=(const ValueBuffer&) = delete;

  // All values, without a copy; the loan ends when gRPC lets the slice go.
  static grpc::Slice Lend(const std::shared_ptr<ValueBuffer>& buffer);

  // If not, whatever was read through loans has been read, and nothing is lent without Lend.
  bool lent() const { return loans_.load(std::memory_order_acquire) > 0; }
  absl::Span<float> values() { return absl::MakeSpan(values_.get(), size_); }

 private:
  class Loan;

  const size_t size_;
  const AlignedMemory<float> values_;
  std::atomic<int> loans_{0};
};

}  // namespace torchps
