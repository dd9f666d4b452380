#pragma once

#include <deque>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "server/coordinator/checkpoint_conductor.h"
#include "server/coordinator/slots/slot_holder.h"
#include "server/rpc/server_calls.h"

namespace torchps {

// Tells every server that a slot is gone. Its process may live and reach other servers, cut off
// from the coordinator's alone: those would wait for it, though its data are another slot's by now.
// The process ends by itself when it hears that its slot is lost. A server that cannot be told lets
// the slot's lease run out.
//
// Thread-safe. A thread of its own makes the calls, from the first one on.
class EvictionNotifier {
 public:
  // `connect` may be null: then there is nobody to tell.
  explicit EvictionNotifier(CheckpointConductor::Connect connect) : connect_(std::move(connect)) {}
  ~EvictionNotifier() { Stop(); }

  // Does not wait.
  void Say(EvictedSlot gone);

  // Breaks off what is under way, and ends the thread. Idempotent.
  void Stop();

 private:
  void Run();
  // Tells all servers at once, and waits for their answers.
  void Tell(const EvictedSlot& gone) ABSL_LOCKS_EXCLUDED(mutex_);

  const CheckpointConductor::Connect connect_;
  ServerCalls calls_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<EvictedSlot> gone_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
