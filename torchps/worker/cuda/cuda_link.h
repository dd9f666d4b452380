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
#include "torchps/common/mutex.h"
#include "torchps/worker/device/device_link.h"

namespace torchps {

// DeviceLink for a GPU. Uses torch's device-independent streams and events, so it does not need the
// CUDA toolkit and also compiles in a build without CUDA. Copies run on two streams of torch's
// pool, separate from the calling thread's computing stream. In an autograd hook, the computing
// stream is the stream of backward(). Host memory must be pinned, or the copies wait for each
// other.
//
// One thread waits for the copies to the host (down), in sequence, and runs the callbacks of
// Down(). A second thread waits for the marks of WhenReached() and runs those callbacks. Each
// thread waits on a separate stream, because torch 1.13 cannot wait for an event.
//
// Thread-safe.
class CudaLink final : public DeviceLink {
 public:
  // Queues a copy on the current stream. May throw c10::Error.
  using Copy = std::function<void(const float* from, c10::Device from_device, float* to,
                                  c10::Device to_device, int64_t elements)>;

  struct Options {
    c10::Device device = c10::Device(c10::DeviceType::CUDA, 0);
    // Converts a torch exception to a status; see TorchError in torchps/worker/torch_error.h.
    std::function<absl::Status(absl::string_view what, const std::exception& error)> error_of;
    // For tests.
    Copy copy = &CopyByTorch;
  };

  // INTERNAL: the device cannot create streams.
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
  // Pairs a callback with the mark that it waits for.
  struct Job {
    std::shared_ptr<const void> end;  // a mark
    Done done;
  };

  CudaLink(Options options, const Streams& streams);

  static void CopyByTorch(const float* from, c10::Device from_device, float* to,
                          c10::Device to_device, int64_t elements);

  // Runs `run`, which calls torch and may throw. If the link failed before, returns that error
  // without running `run`. `what` names the work in the error message.
  absl::Status Run(const char* what, absl::FunctionRef<void()> run) ABSL_LOCKS_EXCLUDED(mutex_);
  c10::Stream ComputeStream() const { return guard_.getStream(options_.device); }
  std::shared_ptr<const c10::Event> Record(const c10::Stream& stream) const;
  static void Wait(const Mark& mark, const c10::Stream& stream);
  // Waits on `stream` for the mark of each of `jobs`, which mutex_ guards, and runs the job's
  // callback. Returns when the link is destroyed.
  void RunDones(std::deque<Job>* jobs, const c10::Stream& stream) ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  const c10::impl::VirtualGuardImpl guard_;
  const Streams streams_;

  Mutex mutex_;
  CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  // The first entry of each queue is being waited for. `downs_` is in the order of the down stream.
  std::deque<Job> downs_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> marks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Held while a thread queues kernels, or a copy and the mark at its end, on the down stream. So
  // `downs_` has the order of the stream.
  Mutex down_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);

  std::thread downs_thread_;
  std::thread marks_thread_;
};

}  // namespace torchps
