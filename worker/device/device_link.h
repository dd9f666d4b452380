#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/device/copy_shares.h"

namespace torchps {

// What a worker's copies need of its device, beside computing: copies to the host and copies from
// it, which go on while the device computes. There are three orders of work: what is computed, by
// whoever gives the device its kernels; the copies down; the copies up. Each order is kept; one
// waits for another only where a mark says so.
//
// Spans named `device` are memory of the device: only the link reads and writes them. Host memory
// is pinned where the device is a GPU. A copy reads its source and writes its destination at any
// time from the call to its end.
//
// Every operation can fail. The first error is kept: whatever is under way ends with it, and each
// later operation returns it.
//
// Thread-safe. Borrows all memory until its destructor, which waits for what is under way.
class DeviceLink {
 public:
  // A point in one of the orders. Null: it was reached already.
  using Mark = std::shared_ptr<const void>;
  // Runs once, on a thread of the link's; perhaps within the call that it was given to. It may only
  // post.
  using Done = std::function<void(const absl::Status& status)>;
  using Give = std::function<absl::Status()>;

  virtual ~DeviceLink() = default;

  // All that the calling thread has given the device to compute so far.
  virtual absl::StatusOr<Mark> AfterCompute() = 0;
  // All copies up so far.
  virtual absl::StatusOr<Mark> AfterUps() = 0;
  // What the calling thread gives the device to compute from now on begins after `mark`.
  virtual absl::Status ComputeAfter(const Mark& mark) = 0;
  // Among what is computed: a copy within the device.
  virtual absl::Status CopyInCompute(absl::Span<const float> device_from,
                                     absl::Span<float> device_to) = 0;

  // Runs `done` once `mark` is reached. No order waits for that. An error that is returned is all:
  // `done` does not run.
  virtual absl::Status WhenReached(const Mark& mark, Done done) = 0;

  // Copies to the host, after `after`. Errors as above.
  virtual absl::Status Down(const Mark& after, absl::Span<const float> device,
                            absl::Span<float> host, Done done) = 0;
  // Among the copies down, after `after`: what `give` gives the device to compute. It runs once,
  // with that order as the current one, perhaps within this call, perhaps later on a thread of the
  // link's, but never beside another one's. Its error is the link's.
  virtual absl::Status InDowns(const Mark& after, Give give) = 0;
  // Copies from the host, after `after`.
  virtual absl::Status Up(const Mark& after, absl::Span<const float> host,
                          absl::Span<float> device) = 0;

  // Blocks until each Down() so far has ended and its `done` has returned.
  virtual void AwaitDowns() = 0;
  // Blocks until each Up() so far has ended.
  virtual absl::Status AwaitUps() = 0;

  // Less than that is not worth a copy of its own.
  virtual int64_t least_copy_bytes() const { return CopyShares::kLeastBytes; }
};

}  // namespace torchps
