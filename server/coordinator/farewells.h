#pragma once

#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "grpcpp/client_context.h"
#include "server/coordinator/checkpoint_conductor.h"
#include "server/coordinator/work/slot_holder.h"

namespace torchps {

// Tells every server that a slot is gone. Its process may live and reach other servers, cut off
// from the coordinator's alone: those would wait for it, though its data are another slot's by now.
// The process ends by itself when it hears that its slot is lost. A server that cannot be told lets
// the slot's lease run out.
//
// Thread-safe. Answers come on threads of gRPC's.
class Farewells {
 public:
  // `connect` may be null: then there is nobody to tell.
  explicit Farewells(CheckpointConductor::Connect connect) : connect_(std::move(connect)) {}
  ~Farewells() { Stop(); }

  // Does not wait.
  void Say(const GoneSlot& gone);

  // Breaks off what is under way. Idempotent.
  void Stop();

 private:
  struct Call;

  const CheckpointConductor::Connect connect_;
  Mutex mutex_;
  CondVar ended_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
