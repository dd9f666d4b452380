#pragma once

#include "absl/status/status.h"
#include "client/pending_push.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// A slot's work between the steps of its loop. The functions here do nothing.
//
// Called by StepLoop, on the thread that calls StepLoop; an error ends the job for the slot.
// Implemented by ReplicaLeader (worker/pipeline/leader.h), if several processes hold the slot's
// model. If one process holds it, ModelHandover (worker/slot/model_handover.h) stores it, and the
// subclasses in worker/slot/run_worker.cc and program/session.cc evaluate it.
class LoopHooks {
 public:
  virtual ~LoopHooks() = default;

  // Called after this slot pushed the model's initial values on request.
  virtual absl::Status OnInitialized() { return absl::OkStatus(); }
  // Waits for the pushes of the same step by other processes that hold parts of the slot's model,
  // and adds their results to `result`.
  virtual absl::Status FinishOthers(PushResult* /*result*/) { return absl::OkStatus(); }

  // Returns true if Evaluate() is to be called.
  virtual bool evaluates() const { return false; }
  // Evaluates the model, which holds the values of epoch `result->epoch()`. Sets all other fields
  // of `result` except seconds.
  virtual absl::Status Evaluate(EvaluationResult* /*result*/) { return absl::OkStatus(); }
  // Called with the same values if they must be kept as model files.
  virtual absl::Status HandOver(const KeepModel& /*keep*/, EvaluationResult* /*result*/) {
    return absl::OkStatus();
  }

  // Returns true if the final values are to be pulled for OnEnd().
  virtual bool wants_final_values() const { return false; }
  // Called when the job is done and the model holds the final values.
  virtual absl::Status OnEnd() { return absl::OkStatus(); }
};

}  // namespace torchps
