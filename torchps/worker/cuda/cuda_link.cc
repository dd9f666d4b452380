#include "torchps/worker/cuda/cuda_link.h"

#include <utility>

#include "ATen/ops/from_blob.h"
#include "absl/memory/memory.h"
#include "c10/core/StreamGuard.h"

namespace torchps {
namespace {

// Wraps `data` in a tensor. Only a copy into the tensor may write to `data`.
at::Tensor TensorAt(const float* data, c10::Device device, int64_t elements) {
  return at::for_blob(const_cast<float*>(data), {elements})
      .options(at::TensorOptions().dtype(at::kFloat).device(device))
      .target_device(device)
      .make_tensor();
}

}  // namespace

void CudaLink::CopyByTorch(const float* from, c10::Device from_device, float* to,
                           c10::Device to_device, int64_t elements) {
  TensorAt(to, to_device, elements)
      .copy_(TensorAt(from, from_device, elements), /*non_blocking=*/true);
}

absl::StatusOr<std::unique_ptr<DeviceLink>> CudaLink::Create(Options options) {
  try {
    const c10::impl::VirtualGuardImpl guard(options.device.type());
    const auto stream = [&] { return guard.getStreamFromGlobalPool(options.device); };
    const Streams streams{stream(), stream(), stream(), stream()};
    // Copies `options`, because the handler below still needs them.
    return std::unique_ptr<DeviceLink>(new CudaLink(options, streams));
  } catch (const std::exception& error) {
    return options.error_of("making streams", error);
  }
}

CudaLink::CudaLink(Options options, const Streams& streams)
    : options_(std::move(options)),
      guard_(options_.device.type()),
      streams_(streams),
      downs_thread_([this] { RunDones(&downs_, streams_.await_downs); }),
      marks_thread_([this] { RunDones(&marks_, streams_.await_marks); }) {}

CudaLink::~CudaLink() {
  AwaitDowns();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  downs_thread_.join();
  marks_thread_.join();
  // Waits for the copies even after an error, because the caller is about to free the memory.
  for (const c10::Stream& stream : {streams_.down, streams_.up}) {
    try {
      guard_.synchronizeStream(stream);
    } catch (const std::exception&) {
      // An earlier call returned the error, or the caller no longer needs it.
    }
  }
}

absl::Status CudaLink::Run(const char* what, absl::FunctionRef<void()> run) {
  {
    MutexLock lock(&mutex_);
    if (!error_.ok()) return error_;
  }
  absl::Status status;
  try {
    run();
  } catch (const std::exception& error) {
    status = options_.error_of(what, error);
  }
  MutexLock lock(&mutex_);
  error_.Update(status);
  return error_;
}

std::shared_ptr<const c10::Event> CudaLink::Record(const c10::Stream& stream) const {
  auto event = std::make_shared<c10::Event>(options_.device.type());
  event->record(stream);
  return event;
}

void CudaLink::Wait(const Mark& mark, const c10::Stream& stream) {
  if (mark != nullptr) static_cast<const c10::Event*>(mark.get())->block(stream);
}

absl::StatusOr<DeviceLink::Mark> CudaLink::AfterCompute() {
  Mark mark;
  const absl::Status status =
      Run("marking what is computed", [&] { mark = Record(ComputeStream()); });
  if (!status.ok()) return status;
  return mark;
}

absl::StatusOr<DeviceLink::Mark> CudaLink::AfterUps() {
  Mark mark;
  const absl::Status status =
      Run("marking copies to the device", [&] { mark = Record(streams_.up); });
  if (!status.ok()) return status;
  return mark;
}

absl::Status CudaLink::ComputeAfter(const Mark& mark) {
  return Run("waiting for copies to the device", [&] { Wait(mark, ComputeStream()); });
}

absl::Status CudaLink::CopyInCompute(absl::Span<const float> device_from,
                                     absl::Span<float> device_to) {
  return Run("taking values over", [&] {
    options_.copy(device_from.data(), options_.device, device_to.data(), options_.device,
                  static_cast<int64_t>(device_to.size()));
  });
}

absl::Status CudaLink::WhenReached(const Mark& mark, Done done) {
  MutexLock lock(&mutex_);
  if (!error_.ok()) return error_;
  marks_.push_back({mark, std::move(done)});
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status CudaLink::Down(const Mark& after, absl::Span<const float> device,
                            absl::Span<float> host, Done done) {
  MutexLock down_lock(&down_mutex_);
  std::shared_ptr<const c10::Event> end;
  const absl::Status status = Run("copying from the device", [&] {
    const c10::StreamGuard on_stream(streams_.down);
    Wait(after, streams_.down);
    options_.copy(device.data(), options_.device, host.data(), c10::Device(c10::kCPU),
                  static_cast<int64_t>(host.size()));
    end = Record(streams_.down);
  });
  if (!status.ok()) return status;
  MutexLock lock(&mutex_);
  downs_.push_back({std::move(end), std::move(done)});
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status CudaLink::InDowns(const Mark& after, Give give) {
  MutexLock down_lock(&down_mutex_);
  absl::Status given;
  const absl::Status status = Run("looking at a gradient, or encoding it", [&] {
    const c10::StreamGuard on_stream(streams_.down);
    Wait(after, streams_.down);
    given = give();
  });
  if (!status.ok() || given.ok()) return status;
  MutexLock lock(&mutex_);
  error_.Update(given);
  return error_;
}

absl::Status CudaLink::Up(const Mark& after, absl::Span<const float> host,
                          absl::Span<float> device) {
  return Run("copying to the device", [&] {
    const c10::StreamGuard on_stream(streams_.up);
    Wait(after, streams_.up);
    options_.copy(host.data(), c10::Device(c10::kCPU), device.data(), options_.device,
                  static_cast<int64_t>(device.size()));
  });
}

void CudaLink::AwaitDowns() {
  MutexLock lock(&mutex_);
  while (!downs_.empty()) changed_.Wait(&mutex_);
}

absl::Status CudaLink::AwaitUps() {
  return Run("copying to the device", [&] { guard_.synchronizeStream(streams_.up); });
}

void CudaLink::RunDones(std::deque<Job>* jobs, const c10::Stream& stream) {
  // Torch restores the thread's device after each use of an event. A new thread starts on the first
  // GPU. Since CUDA 12, restoring that device creates a context, which uses about 500 MB of a GPU
  // that may belong to another process.
  Run("using the device", [&] { guard_.setDevice(options_.device); }).IgnoreError();
  while (true) {
    Job job;
    {
      MutexLock lock(&mutex_);
      while (jobs->empty() && !stopping_) changed_.Wait(&mutex_);
      if (jobs->empty()) return;
      job = std::move(jobs->front());
    }
    const absl::Status status = Run("waiting for the device", [&] {
      Wait(job.end, stream);
      guard_.synchronizeStream(stream);
    });
    job.done(status);
    job = Job();
    MutexLock lock(&mutex_);
    jobs->pop_front();
    changed_.SignalAll();
  }
}

}  // namespace torchps
