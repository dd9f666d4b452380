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
#include "common/mutex.h"
#include "worker/device/copy_shares.h"
#include "worker/device/device_link.h"

namespace torchps {

// A device made of host memory, which does what it is given late: each of the three orders is kept,
// and apart from marks nothing is promised about any two of them, so they are mixed by a seed. A
// copy fills its destination with kPoison when it begins, and reads its source when it ends.
//
// Stepped by the test: everything happens in Step(), on the thread that calls it, and Compute()
// adds a kernel to the order of computing. With `own_thread` a thread of the link's makes the steps
// of the copies, and what is computed is computed by the caller, at once: for whole workers on the
// CPU. Then the waits of the interface block; else they make steps until they are over.
//
// Operation `fail_at`, counted from 0 over all calls and all ends of copies, fails: everything ends
// with that error from then on, and no copy is made any more.
//
// Thread-safe with `own_thread`, else thread-compatible.
class FakeLink final : public DeviceLink {
 public:
  struct Options {
    uint64_t seed = 1;
    bool own_thread = false;
    int64_t fail_at = -1;
    int64_t least_copy_bytes = CopyShares::kLeastBytes;
    // Counts the copies down that are given, but for empty ones. Null: nobody does.
    std::atomic<int64_t>* downs = nullptr;
    // Set when operation `fail_at` fails, for whoever does not own the link. Null: nobody asks.
    std::atomic<bool>* has_failed = nullptr;
  };

  // Not a number, and equal to nothing.
  static float Poison();

  explicit FakeLink(Options options);
  ~FakeLink() override;

  // REQUIRES: no `own_thread`, for both.
  void Compute(std::function<void()> kernel);
  // Begins or ends something that may be next. False: there is nothing.
  bool Step();

  // Operations so far.
  int64_t operations() const ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<Mark> AfterCompute() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Mark> AfterUps() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ComputeAfter(const Mark& mark) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CopyInCompute(absl::Span<const float> device_from,
                             absl::Span<float> device_to) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WhenReached(const Mark& mark, Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Down(const Mark& after, absl::Span<const float> device, absl::Span<float> host,
                    Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `give` late, as its end.
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
  // Something in an order.
  struct Job {
    std::shared_ptr<const Point> after;
    bool has_begun = false;
    std::function<void()> begin;
    std::function<void()> end;
    Done done;
    // Its end is an operation.
    bool is_copy = false;
  };
  // Marks that are waited for are one more.
  enum Order { kCompute, kDown, kUp, kMarks, kOrders };

  // Counts an operation; its error, if it is the one that fails, or an earlier one's.
  absl::Status Operation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Mark AddPoint(Order order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(Order order, Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Job Copy(const Mark& after, absl::Span<const float> from, absl::Span<float> to);
  bool StepLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayStep(const std::deque<Job>& order) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Steps, or waits for steps, until `is_over`.
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
  // Downs whose `done` has not returned.
  int64_t downs_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace torchps
