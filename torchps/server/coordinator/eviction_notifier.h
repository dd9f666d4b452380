#pragma once

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "torchps/common/mutex.h"
#include "torchps/server/coordinator/checkpoint_conductor.h"
#include "torchps/server/coordinator/slot_registry.h"
#include "torchps/server/rpc/poller.h"

namespace torchps {

// Notifies all servers that a slot was evicted. The slot's process may still run and reach all
// servers except server 0, the coordinator. Without the notification, these servers would wait for
// gradients, although the samples already belong to another slot. A notified server refuses the
// next call of the process, which then exits. A server that the notification does not reach drops
// the slot when the lease there ends.
//
// Thread-safe. Uses a separate thread, which starts with the first call.
class EvictionNotifier {
 public:
  // If `connect` is null, Notify() does nothing.
  explicit EvictionNotifier(CheckpointConductor::Connect connect) : connect_(std::move(connect)) {}
  ~EvictionNotifier() { Stop(); }

  // Queues the notification. Does not block.
  void Notify(EvictedSlot gone);

  // Cancels running calls and stops the thread. Idempotent.
  void Stop();

 private:
  void Run();
  // Notifies all servers in parallel and waits for the answers.
  void NotifyServers(const EvictedSlot& gone) ABSL_LOCKS_EXCLUDED(mutex_);

  const CheckpointConductor::Connect connect_;
  ServerCalls calls_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<EvictedSlot> gone_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
