#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/mutex.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/store/block_updater.h"
#include "torchps/server/store/parameter_store.h"
#include "torchps/server/store/push_policy.h"

namespace torchps {

// Identifies one server of a job, with the addresses that workers use for this server and the
// coordinator.
struct ServerIdentity {
  uint64_t job_id = 0;
  int server_index = 0;
  int server_count = 0;
  // HOST:PORT; empty if unknown or inside this process.
  std::string address;
  std::string coordinator;

  friend bool operator==(const ServerIdentity& a, const ServerIdentity& b) {
    return a.job_id == b.job_id && a.server_index == b.server_index &&
           a.server_count == b.server_count && a.address == b.address &&
           a.coordinator == b.coordinator;
  }
};

// Progress of a server that restores a job or allocates memory for a new one. Thread-safe.
class RestoreProgress {
 public:
  // Begins a phase. `what` describes the phase to people, for example "reads checkpoint 7". `total`
  // is the number of Done() calls to expect; 0 if unknown.
  void Begin(std::string what, int64_t total = 0) {
    MutexLock lock(&mutex_);
    what_ = std::move(what);
    done_ = 0;
    total_ = total;
  }

  // Counts one finished part.
  void Done() {
    MutexLock lock(&mutex_);
    ++done_;
  }

  Restoring Describe() const {
    MutexLock lock(&mutex_);
    Restoring restoring;
    restoring.set_what(what_);
    if (total_ > 0) restoring.set_part(static_cast<double>(done_) / static_cast<double>(total_));
    return restoring;
  }

 private:
  mutable Mutex mutex_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t total_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The job's terms and this server's share of the blocks, as the first Hello defines them. Later
// Hellos are checked against the terms. Owns all members; the blocks hold no values yet.
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

// Builds the parts from the first Hello. INVALID_ARGUMENT: the job, layout or placement is invalid;
// the message names the fault. RESOURCE_EXHAUSTED: the blocks need more memory than this process
// may use. `clock` outlives the parts.
absl::StatusOr<JobParts> MakeJobParts(const HelloRequest& request, const Clock* clock);

// FAILED_PRECONDITION if this Hello belongs to another job, model or placement; the message names
// the first difference.
absl::Status CheckSameJob(const JobParts& parts, const HelloRequest& request);

}  // namespace torchps
