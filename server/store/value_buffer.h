#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "common/cpu/aligned_array.h"
#include "grpcpp/support/slice.h"

namespace torchps {

// Memory for the values of one block. Pulls borrow it to send the values without a copy.
//
// Thread-compatible, but loans may end on any thread. Loans keep the buffer alive. Invariant: the
// owner does not write to a lent buffer (Block continues in another buffer).
class ValueBuffer {
 public:
  // The values are uninitialized.
  // REQUIRES: `size` > 0.
  explicit ValueBuffer(size_t size);
  ValueBuffer(const ValueBuffer&) = delete;
  ValueBuffer& operator=(const ValueBuffer&) = delete;

  // Returns the values without a copy. The loan ends when gRPC frees the slice.
  static grpc::Slice Lend(const std::shared_ptr<ValueBuffer>& buffer);

  // False if all loans have ended and their reads are complete.
  bool lent() const { return loans_.load(std::memory_order_acquire) > 0; }
  absl::Span<float> values() { return absl::MakeSpan(values_.get(), size_); }

 private:
  class Loan;

  const size_t size_;
  const AlignedMemory<float> values_;
  std::atomic<int> loans_{0};
};

}  // namespace torchps
