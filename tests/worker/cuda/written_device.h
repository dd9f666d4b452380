#pragma once

#include <string>
#include <utility>
#include <vector>

#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/util/Exception.h"
#include "torchps/common/mutex.h"

namespace torchps {

// Registers a torch device type that computes nothing. It only records the operations on its
// streams, for example "record e1 on s0". Events are numbered from 1. Stream 0 is the stream of
// computations.
//
// Thread-safe.
class WrittenDevice final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr auto kType = c10::DeviceType::PrivateUse1;

  // Returns the instance registered with torch.
  static WrittenDevice* Get() {
    static auto* const device = [] {
      auto* const made = new WrittenDevice;
      const c10::impl::DeviceGuardImplRegistrar registrar(kType, made);
      return made;
    }();
    return device;
  }

  void Begin(int fail_at) {
    MutexLock lock(&mutex_);
    lines_.clear();
    fail_at_ = fail_at;
    streams_ = events_ = 0;
  }
  std::vector<std::string> lines() const {
    MutexLock lock(&mutex_);
    return lines_;
  }
  void Write(const std::string& line) const {
    MutexLock lock(&mutex_);
    lines_.push_back(line);
    TORCH_CHECK(fail_at_ != static_cast<int>(lines_.size()), line, " was refused");
  }
  // Returns the second device. New threads use the first device, as with CUDA.
  static c10::Device device() { return c10::Device(kType, 1); }

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return std::exchange(current_device(), to);
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device to) const override { current_device() = to; }
  void uncheckedSetDevice(c10::Device to) const noexcept override { current_device() = to; }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }
  c10::Stream getStream(c10::Device) const noexcept override { return GetStream(current()); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    MutexLock lock(&mutex_);
    return GetStream(++streams_);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = GetStream(current());
    current() = stream.id();
    return before;
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    {
      MutexLock lock(&mutex_);
      *event = reinterpret_cast<void*>(static_cast<intptr_t>(++events_));
    }
    Write("record " + Event(*event) + " on " + Name(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    Write(Name(stream) + " after " + Event(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream& stream) const override {
    Write("keep memory for " + Name(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Write("wait for " + Name(stream));
  }

 private:
  static c10::Device& current_device() {
    static thread_local c10::Device device(kType, 0);
    return device;
  }
  static c10::StreamId& current() {
    static thread_local c10::StreamId stream = 0;
    return stream;
  }
  static c10::Stream GetStream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(), id);
  }
  static std::string Name(const c10::Stream& stream) { return "s" + std::to_string(stream.id()); }
  static std::string Event(void* event) {
    return "e" + std::to_string(reinterpret_cast<intptr_t>(event));
  }

  mutable Mutex mutex_;
  mutable std::vector<std::string> lines_;
  mutable c10::StreamId streams_ = 0;
  mutable intptr_t events_ = 0;
  int fail_at_ = -1;
};

}  // namespace torchps
