#pragma once

#include "absl/status/status.h"
#include "torchps/client/pending_push.h"
#include "torchps/proto/coordinator.pb.h"

namespace torchps {

// The work that a slot does between the steps of its loop, such as an evaluation. The functions of
// this base class do nothing.
//
// StepLoop calls the hooks on the thread that calls StepLoop. An error ends the job for the slot.
// If several processes hold the slot's model, ReplicaLeader (torchps/worker/pipeline/leader.h)
// implements the hooks. If one process holds the model, ModelHandover
// (torchps/worker/slot/model_handover.h) stores it, and subclasses of ModelHandover in
// torchps/worker/slot/run_worker.cc and torchps/session.cc evaluate it.
class LoopHooks {
 public:
  virtual ~LoopHooks() = default;

  // Called after this slot pushed the model's initial values because the coordinator asked for
  // them.
  virtual absl::Status OnInitialized() { return absl::OkStatus(); }
  // Called when this process's push of a step has ended. Waits until the other processes that hold
  // parts of the slot's model have pushed the step, and adds their results to `result`.
  virtual absl::Status FinishOthers(PushResult* /*result*/) { return absl::OkStatus(); }

  // Returns true if Evaluate() is to be called.
  virtual bool evaluates() const { return false; }
  // Evaluates the model, which holds the values pulled after epoch `result->epoch()`. Sets the
  // samples, the loss and the metrics in `result`.
  virtual absl::Status Evaluate(EvaluationResult* /*result*/) { return absl::OkStatus(); }
  // Stores the model in the files that `keep` selects. Called after the evaluation, if any, while
  // the model holds the same values. Not called if server 0 stores no models.
  virtual absl::Status HandOver(const KeepModel& /*keep*/, EvaluationResult* /*result*/) {
    return absl::OkStatus();
  }

  // Returns true if the final values are to be pulled for OnEnd().
  virtual bool wants_final_values() const { return false; }
  // Called when the job is done and the model holds the final values.
  virtual absl::Status OnEnd() { return absl::OkStatus(); }
};

}  // namespace torchps
