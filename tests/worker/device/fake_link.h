#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/common/mutex.h"
#include "torchps/worker/device/device_link.h"
#include "torchps/worker/device/final_shares.h"

namespace torchps {

// Simulates a device of host memory that runs operations late. As in DeviceLink, there are three
// orders: computing, copies down and copies up. The seed decides which order continues next. Only
// marks make one order wait for another. Copies fill their destination with Poison() when they
// begin, and read their source when they end.
//
// By default the test runs the operations: Step() runs them on the calling thread, and Compute()
// appends a kernel to the computing order. Functions that wait run steps until the awaited
// operation is over.
//
// With `own_thread`, the link's own thread runs the copies, and the caller computes at once.
// Functions that wait then block. This mode serves whole workers on the CPU.
//
// Operation `fail_at` fails. Calls count as operations, and so do the ends of copies, from 0. After
// the failure, each operation returns its error, and copies stop.
//
// Thread-safe with `own_thread`, else thread-compatible.
class FakeLink final : public DeviceLink {
 public:
  struct Options {
    uint64_t seed = 1;
    bool own_thread = false;
    int64_t fail_at = -1;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
    // Counts the nonempty copies down. May be null.
    std::atomic<int64_t>* downs = nullptr;
    // Set when operation `fail_at` fails, for callers that do not own the link. May be null.
    std::atomic<bool>* has_failed = nullptr;
  };

  // Returns a NaN.
  static float Poison();

  explicit FakeLink(Options options);
  ~FakeLink() override;

  // REQUIRES: `own_thread` is false, for both functions.
  void Compute(std::function<void()> kernel);
  // Begins or ends an operation that may run next. Returns false if the link is idle.
  bool Step();

  // Returns the number of operations so far.
  int64_t operations() const ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<Mark> AfterCompute() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Mark> AfterUps() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ComputeAfter(const Mark& mark) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CopyInCompute(absl::Span<const float> device_from,
                             absl::Span<float> device_to) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WhenReached(const Mark& mark, Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Down(const Mark& after, absl::Span<const float> device, absl::Span<float> host,
                    Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `give` late, at the end of the operation.
  absl::Status InDowns(const Mark& after, Give give) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Up(const Mark& after, absl::Span<const float> host,
                  absl::Span<float> device) override ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitDowns() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitUps() override ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t least_copy_bytes() const override { return options_.least_copy_bytes; }

 private:
  struct Point {
    bool reached = false;
  };
  // An entry of an order.
  struct Job {
    std::shared_ptr<const Point> after;
    bool has_begun = false;
    std::function<void()> begin;
    std::function<void()> end;
    Done done;
    // True if the job's end counts as an operation.
    bool is_copy = false;
  };
  // Waits for marks form the fourth order.
  enum Order { kCompute, kDown, kUp, kMarks, kOrders };

  // Counts an operation. Returns this operation's error or an earlier error.
  absl::Status Operation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Mark AddPoint(Order order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(Order order, Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Job Copy(const Mark& after, absl::Span<const float> from, absl::Span<float> to);
  bool StepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayStep(const std::deque<Job>& order) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs steps, or waits for steps, until `is_over` returns true.
  template <typename IsOver>
  void Await(IsOver is_over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t random_ ABSL_GUARDED_BY(mutex_);
  int64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> orders_[kOrders] ABSL_GUARDED_BY(mutex_);
  // Number of copies down whose `done` has not returned yet.
  int64_t downs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace torchps
