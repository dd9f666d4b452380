#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "common/mutex.h"
#include "worker/device/device_link.h"

namespace torchps {

// A GPU, by what torch's streams and events are for every kind of device: so it needs no toolkit,
// and a build without CUDA compiles it as well. Two streams of torch's pool beside the one that the
// calling thread computes on, which in a hook is the one of backward(). Host memory is pinned, else
// the copies wait for each other.
//
// A thread of its own waits for the copies down, one after the other, and runs what is to be done
// after them; another one does so for marks. Each waits on a stream of its own, since torch 1.13
// cannot wait for an event.
//
// Thread-safe.
class CudaLink final : public DeviceLink {
 public:
  // Gives the current stream a copy. Throws what torch throws.
  using Copy = std::function<void(const float* from, c10::Device from_device, float* to,
                                  c10::Device to_device, int64_t elements)>;

  struct Options {
    c10::Device device = c10::Device(c10::DeviceType::CUDA, 0);
    // The status of what torch has thrown: TorchError, of the room above.
    std::function<absl::Status(absl::string_view what, const std::exception& error)> error_of;
    // For tests.
    Copy copy = &CopyByTorch;
  };

  // INTERNAL: the device gives no streams.
  static absl::StatusOr<std::unique_ptr<DeviceLink>> Create(Options options);
  ~CudaLink() override;

  absl::StatusOr<Mark> AfterCompute() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Mark> AfterUps() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ComputeAfter(const Mark& mark) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CopyInCompute(absl::Span<const float> device_from,
                             absl::Span<float> device_to) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WhenReached(const Mark& mark, Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Down(const Mark& after, absl::Span<const float> device, absl::Span<float> host,
                    Done done) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status InDowns(const Mark& after, Give give) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Up(const Mark& after, absl::Span<const float> host,
                  absl::Span<float> device) override ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitDowns() override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitUps() override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Streams {
    c10::Stream down;
    c10::Stream up;
    c10::Stream await_downs;
    c10::Stream await_marks;
  };
  // What is waited for.
  struct Job {
    std::shared_ptr<const void> end;  // a mark
    Done done;
  };

  CudaLink(Options options, const Streams& streams);

  static void CopyByTorch(const float* from, c10::Device from_device, float* to,
                          c10::Device to_device, int64_t elements);

  // Runs torch's code, which may throw. Does nothing after an error, which it returns.
  absl::Status Run(const char* what, absl::FunctionRef<void()> run) ABSL_LOCKS_EXCLUDED(mutex_);
  c10::Stream ComputeStream() const { return guard_.getStream(options_.device); }
  std::shared_ptr<const c10::Event> Record(const c10::Stream& stream) const;
  static void Wait(const Mark& mark, const c10::Stream& stream);
  // Waits on `stream` for each of `jobs`, which are guarded by mutex_, until the link ends.
  void RunDones(std::deque<Job>* jobs, const c10::Stream& stream) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const c10::impl::VirtualGuardImpl guard_;
  const Streams streams_;

  Mutex mutex_;
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // Of each the first one is waited for. Copies down lie in the order of their stream.
  std::deque<Job> downs_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> marks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Held while a copy and what marks its end, or kernels, are put in the down stream's order.
  Mutex down_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  std::thread downs_thread_;
  std::thread marks_thread_;
};

}  // namespace torchps
