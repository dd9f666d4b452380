#include "worker/call_queue.h"

#include <chrono>

namespace torchps {

CallQueue::CallQueue(StopLatch* stop) {
  on_stop_.emplace(stop, [this] {
    stop_alarm_.Set(&queue_, std::chrono::system_clock::now(), /*tag=*/nullptr);
  });
}

CallQueue::~CallQueue() {
  on_stop_.reset();
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

}  // namespace torchps
