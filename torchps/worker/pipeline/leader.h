#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/pending_push.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/worker/learner.h"
#include "torchps/worker/loop/loop_hooks.h"
#include "torchps/worker/loop/step_work.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/pipeline/exchange.h"
#include "torchps/worker/pipeline/stage_work.h"

namespace torchps {

// Coordinates the other processes of a replica: sends each step to them and collects the results.
// The slot's StepLoop calls this class where the other processes must take part in a step.
//
// Thread-compatible: used by one thread, the leader's trainer. Borrows the options.
class ReplicaLeader final : public LoopHooks {
 public:
  struct Options {
    Exchange* exchange = nullptr;
    StageWork* work = nullptr;
    ParameterClient* parameters = nullptr;
    const Objective* objective = nullptr;
    int micro_batches = 0;
  };

  explicit ReplicaLeader(Options options) : options_(options) {}

  // Blocks until the other processes are ready and connected to the servers.
  absl::Status AwaitReady();
  // Makes the other processes push their initial values.
  absl::Status OnInitialized() override;
  // Like Learner::Compute(), for all stages. The other processes then start their pushes.
  absl::StatusOr<Learner::Gradient> Compute(const StepWork& step, Learner::Observer* observer);
  // Waits for the other processes' pushes of the latest Compute(), and adds their results to
  // `result`.
  absl::Status FinishOthers(PushResult* result) override;
  // Evaluates the servers' current values. REQUIRES: the leader pulled its part.
  absl::Status Evaluate(EvaluationResult* result) override;
  bool evaluates() const override { return true; }
  // Ends the job in the other processes.
  void End();

 private:
  // Sends `order` to the other processes.
  void Order(const ReplicaOrder& order);
  // Waits until the other processes have finished the latest order. Adds their reports to `result`.
  absl::Status AwaitDone(PushResult* result);

  const Options options_;
  int64_t orders_ = 0;
};

}  // namespace torchps
