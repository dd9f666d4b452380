#pragma once

#include <cstddef>
#include <string>

#include "torchps/worker/precision/precision.h"

namespace torchps {

// Receives the events of a process that computes gradients, from all its steps. (Learner::Observer
// receives the events of one step.)
//
// Called by Learner, StageWork and StagePasses. Implemented by WorkerSlot, and by ReplicaGroup for
// each replica. With several replicas, their threads call all functions but OnScale() concurrently.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;

  // Called when a pass has ended, and when the samples of a pass have arrived.
  virtual void OnProgress() {}
  // Called before a pass of `samples` samples, summed over all replicas. StageWork does not call
  // it.
  virtual void OnPass(size_t /*samples*/) {}
  // Called if the loss scale changed after a step.
  virtual void OnScale(const LossScaler& /*scaler*/) {}
  // Receives log lines for users.
  virtual void Log(const std::string& /*line*/) {}

  // Returns an observer that ignores all calls.
  static TrainingObserver* None() {
    static TrainingObserver none;
    return &none;
  }
};

}  // namespace torchps
