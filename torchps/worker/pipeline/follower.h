#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/pending_pull.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/pipeline/exchange.h"
#include "torchps/worker/pipeline/stage_work.h"

namespace torchps {

// Executes the leader's orders one after the other, in a replica process that does not lead.
//
// Thread-compatible: used by one thread, the trainer. Borrows the options.
class ReplicaFollower {
 public:
  struct Options {
    JobSpec job;
    Exchange* exchange = nullptr;
    StageWork* work = nullptr;
    FlatModel* model = nullptr;
    // The client for this process's part of the model.
    ParameterClient* parameters = nullptr;
    // For tests; as in StageWork.
    std::function<void(MemberPhase phase, int64_t order)> on_phase;
  };

  explicit ReplicaFollower(Options options) : options_(std::move(options)) {}

  // Runs until the leader ends the job. Returns errors of the exchange, StageWork and
  // ParameterClient.
  absl::Status Run();

 private:
  // Computes a step and pushes this process's part. Returns false if there was no push, because the
  // gradient was not finite.
  absl::StatusOr<bool> Train(int64_t number, const ReplicaOrder& order, ReplicaReport* report);
  absl::Status Pull(int64_t clock, bool read_only);
  void Tell(MemberPhase phase, int64_t number) const;

  const Options options_;
  // The versions of the blocks in the model's values; Pull() skips unchanged blocks.
  CachedVersions held_;
};

}  // namespace torchps
