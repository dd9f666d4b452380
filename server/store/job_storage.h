#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/job.pb.h"
#include "proto/parameter_service.pb.h"
#include "server/store/block_journal.h"
#include "server/store/block_updater.h"
#include "server/store/parameter_store.h"

namespace torchps {

// One server's part of one job, as its storage must know it. Borrows everything.
struct JobShare {
  const JobSpec& job;  // normalised
  uint64_t job_id = 0;
  const ModelLayout& layout;
  const BlockMap& map;
  int server = 0;
  const BlockUpdater& updater;
  // As Restore::Request has them.
  uint64_t resumed_checkpoint = 0;
  Incarnation incarnation = 0;
  // Something must be kept of it: the worker that brings the job has seen its model here before.
  bool must_be_known = false;
};

// Where a server's blocks outlive its process.
//
// Open() is called once, before anything else and before any block can change; the others are
// thread-safe. Usable for as long as the job is being called.
class JobStorage {
 public:
  // What a server's life began from.
  struct Origin {
    uint64_t checkpoint = 0;  // 0: none
    bool from_log = false;    // nothing that was acknowledged is missing
    uint64_t replayed = 0;    // records of the log
  };

  virtual ~JobStorage() = default;

  // Brings back what is kept of this share: by StoreSnapshot::Restore for each of its blocks, in
  // one go or, where that turned out to be damaged, again. Nothing: nothing is kept of this job.
  //   FAILED_PRECONDITION  the job cannot be kept here, or what is kept is not of this job
  //   NOT_FOUND            it must be known, and is not
  //   DATA_LOSS            what is kept is damaged, and there is nothing older
  //   UNAVAILABLE          the disk refuses: another try may do
  virtual absl::StatusOr<std::optional<Origin>> Open(const JobShare& share,
                                                     ParameterStore* store) = 0;

  // Hears of every change from now on; null: none is kept. REQUIRES: Open() was OK.
  virtual BlockJournal* journal() = 0;

  virtual void Describe(DurabilityStatus* status) = 0;
};

}  // namespace torchps
