#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cached_versions.h"
#include "client/parameter_client.h"
#include "proto/job.pb.h"
#include "proto/replica.pb.h"
#include "worker/flat_model.h"
#include "worker/pipeline/exchange.h"
#include "worker/pipeline/member_task.h"
#include "worker/pipeline/stage_work.h"

namespace torchps {

// What a process of a replica does that does not lead: the leader's orders, one after the other.
//
// Thread-compatible: one thread, its trainer. Borrows everything.
class ReplicaFollower {
 public:
  struct Options {
    JobSpec job;
    Exchange* exchange = nullptr;
    StageWork* work = nullptr;
    FlatModel* model = nullptr;
    // Of this process's part.
    ParameterClient* parameters = nullptr;
    // As StageWork's: for tests.
    std::function<void(MemberPhase phase, int64_t order)> on_phase;
  };

  explicit ReplicaFollower(Options options) : options_(std::move(options)) {}

  // Until the leader says that the job is done. Errors are those of the exchange, of StageWork and
  // of ParameterClient.
  absl::Status Run();

 private:
  // False: nothing is pushed.
  absl::StatusOr<bool> Train(int64_t number, const ReplicaOrder& order, ReplicaReport* report);
  absl::Status Pull(int64_t clock, bool read_only);
  void Tell(MemberPhase phase, int64_t number) const;

  const Options options_;
  // What the model's values hold.
  CachedVersions held_;
};

}  // namespace torchps
