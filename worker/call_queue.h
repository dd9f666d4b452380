#pragma once

#include <optional>

#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"
#include "worker/stop_latch.h"

namespace torchps {

// A completion queue that wakes whoever polls it when the process is to stop: by one event without
// a tag, once in its life. One thread polls; the stop may come from any. Borrows the latch.
class CallQueue {
 public:
  explicit CallQueue(StopLatch* stop);
  // REQUIRES: no call is in flight.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  grpc::CompletionQueue* get() { return &queue_; }

 private:
  grpc::CompletionQueue queue_;
  // Lives until its event is out of the queue. One that was destroyed at the moment it went off
  // crashed gRPC 1.51 on its timer's thread.
  grpc::Alarm stop_alarm_;
  std::optional<StopLatch::Registration> on_stop_;
};

}  // namespace torchps
