#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/block_updater.h"
#include "torchps/server/store/parameter_store.h"

namespace torchps {

// Describes one server's part of one job to the storage. Borrows the members.
struct JobShare {
  const JobSpec& job;  // normalized
  uint64_t job_id = 0;
  const ModelLayout& layout;
  const BlockMap& map;
  int server = 0;
  const BlockUpdater& updater;
  // As in Restore::Request.
  uint64_t resumed_checkpoint = 0;
  Incarnation incarnation = 0;
  // True if the storage must contain this job, because the worker saw the model here before.
  bool must_be_known = false;
};

// Keeps a server's blocks across process restarts.
//
// Open() is called once, before other methods and before any block changes. The other methods are
// thread-safe. Must outlive the job's calls.
class JobStorage {
 public:
  // The saved state that a server restored.
  struct Origin {
    uint64_t checkpoint = 0;  // 0: none
    bool from_log = false;    // true if all acknowledged changes were restored
    uint64_t replayed = 0;    // number of log records replayed
  };

  virtual ~JobStorage() = default;

  // Restores the blocks of this share with StoreSnapshot::Restore. May restore a block twice, if a
  // newer copy is damaged. Returns nullopt if this job is not saved here.
  //   FAILED_PRECONDITION  the job cannot be saved here, or the saved job is another one
  //   NOT_FOUND            `must_be_known` is set, but the job is not saved here
  //   DATA_LOSS            the saved state is damaged, and an older one does not exist
  //   UNAVAILABLE          the disk failed; a retry may succeed
  virtual absl::StatusOr<std::optional<Origin>> Open(const JobShare& share,
                                                     ParameterStore* store) = 0;

  // Returns the journal that records each change from now on; null if changes are not recorded.
  // REQUIRES: Open() returned OK.
  virtual BlockJournal* journal() = 0;

  virtual void Describe(DurabilityStatus* status) = 0;

  // True if the storage would like a checkpoint soon, to free disk space.
  virtual bool wants_checkpoint() const { return false; }
};

}  // namespace torchps
