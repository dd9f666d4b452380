#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/device/copy_shares.h"

namespace torchps {

// Copies between host and device memory while the device computes. Work is queued in three orders:
// computing, copies to the host (down), copies from the host (up). Each order runs in sequence. One
// order waits for another only at a mark.
//
// Spans named `device` are device memory that only the link reads and writes. Host memory is pinned
// if the device is a GPU. A copy may read the source and write the destination at any time until
// the copy ends.
//
// Any operation can fail. The link keeps the first error: it ends pending work, and each later
// operation returns it.
//
// Thread-safe. Borrows all memory until the destructor returns, which waits for pending work.
class DeviceLink {
 public:
  // A point in one of the orders. Null means already reached.
  using Mark = std::shared_ptr<const void>;
  // Called once, on a thread of the link or within the call that received it. It must not block: it
  // may only post work.
  using Done = std::function<void(const absl::Status& status)>;
  using Give = std::function<absl::Status()>;

  virtual ~DeviceLink() = default;

  // Returns a mark after everything that the calling thread has queued for computing.
  virtual absl::StatusOr<Mark> AfterCompute() = 0;
  // Returns a mark after all copies up so far.
  virtual absl::StatusOr<Mark> AfterUps() = 0;
  // Makes later computing of the calling thread begin after `mark`.
  virtual absl::Status ComputeAfter(const Mark& mark) = 0;
  // Queues a copy within the device among the computing.
  virtual absl::Status CopyInCompute(absl::Span<const float> device_from,
                                     absl::Span<float> device_to) = 0;

  // Runs `done` when `mark` is reached, without blocking any order. If this returns an error,
  // `done` does not run.
  virtual absl::Status WhenReached(const Mark& mark, Done done) = 0;

  // Copies to the host after `after`. Errors as for WhenReached().
  virtual absl::Status Down(const Mark& after, absl::Span<const float> device,
                            absl::Span<float> host, Done done) = 0;
  // Among the copies down, after `after`: what `give` gives the device to compute. It runs once,
  // with that order as the current one, perhaps within this call, perhaps later on a thread of the
  // link's, but never beside another one's. Its error is the link's.
  virtual absl::Status InDowns(const Mark& after, Give give) = 0;
  // Copies from the host after `after`.
  virtual absl::Status Up(const Mark& after, absl::Span<const float> host,
                          absl::Span<float> device) = 0;

  // Blocks until every Down() so far has ended and the `done` callbacks have returned.
  virtual void AwaitDowns() = 0;
  // Blocks until every Up() so far has ended.
  virtual absl::Status AwaitUps() = 0;

  // Smaller copies are not worth a call of their own.
  virtual int64_t least_copy_bytes() const { return CopyShares::kLeastBytes; }
};

}  // namespace torchps
