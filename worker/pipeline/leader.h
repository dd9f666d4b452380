#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "client/pending_push.h"
#include "proto/replica.pb.h"
#include "worker/evaluation.h"
#include "worker/learner.h"
#include "worker/objective.h"
#include "worker/pipeline/exchange.h"
#include "worker/pipeline/stage_work.h"

namespace torchps {

// What a replica's leader does beside its own stage's work: tells the others each step, and hears
// what came of it. The slot's StepLoop calls it where a worker with the whole model would do things
// alone.
//
// Thread-compatible: one thread, the leader's trainer. Borrows everything.
class ReplicaLeader {
 public:
  struct Options {
    Exchange* exchange = nullptr;
    StageWork* work = nullptr;
    ParameterClient* parameters = nullptr;
    const Objective* objective = nullptr;
    int micro_batches = 0;
  };

  explicit ReplicaLeader(Options options) : options_(options) {}

  // All others are laid out and connected.
  absl::Status AwaitReady();
  // The others push their initial values.
  absl::Status Initialize();
  // As Learner::Compute(), of all stages. The others go on with their pushes.
  absl::StatusOr<Learner::Gradient> Compute(const Learner::Step& step, Learner::Observer* observer);
  // Waits for the pushes of the latest Compute(), and adds what came of them.
  absl::Status FinishOthers(PushResult* result);
  // Of the values that the servers have now; the leader has pulled its own.
  absl::StatusOr<Evaluation> Evaluate();
  // The job is done: the others end.
  void End();

 private:
  // Sends it to all others.
  void Order(const ReplicaOrder& order);
  // Each of them has carried out the latest order; adds what they report.
  absl::Status AwaitDone(PushResult* result);

  const Options options_;
  int64_t orders_ = 0;
};

}  // namespace torchps
