#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "job/update_rule.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"
#include "server/store/block_updater.h"
#include "server/store/parameter_store.h"
#include "server/store/push_policy.h"

namespace torchps {

// What one server has of a job, made of the first Hello: the terms, and the blocks that are its
// share. Every later Hello is held against the terms. Owns everything; the blocks have no values
// yet.
struct JobParts {
  JobSpec spec;
  ModelLayout layout;
  BlockMap map;
  uint64_t job_id = 0;
  uint64_t resumed_checkpoint = 0;  // as in HelloRequest
  int server_index = 0;
  std::unique_ptr<BlockUpdater> updater;
  std::unique_ptr<PushPolicy> policy;
  std::unique_ptr<ParameterStore> store;

  bool has_rounds() const { return HasRounds(spec.consistency()); }
  bool collects_pushes() const { return CollectsPushes(spec.consistency()); }
};

// INVALID_ARGUMENT names what in the job, the layout or the placement cannot be.
// RESOURCE_EXHAUSTED: the blocks take more memory than this process may have. `clock` outlives the
// parts.
absl::StatusOr<JobParts> MakeJobParts(const HelloRequest& request, const Clock* clock);

// FAILED_PRECONDITION with the first difference, if this Hello is of another job, model or
// placement.
absl::Status CheckSameJob(const JobParts& parts, const HelloRequest& request);

}  // namespace torchps
