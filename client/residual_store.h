#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "storage/file_system.h"

namespace torchps {

// Where a worker keeps what its lossy pushes still owe (client/error_feedback.h), for whoever holds
// its slot after it: one file for each slot, DIR/residual-SLOT, replaced as a whole.
// docs/checkpoint.md has its format and says when it is written and taken up.
//
// Thread-compatible. Borrows the file system.
class ResidualStore {
 public:
  struct Saved {
    // The last step of the slot that has left what it owes in `residual`.
    Step step = 0;
    std::vector<float> residual;
  };

  // `directory` is made when something is saved.
  ResidualStore(FileSystem* files, std::string directory, uint64_t job_id, SlotId slot);

  // In place of what was saved before, which stays if this fails. It survives a power cut. Errors
  // as FileSystem's.
  absl::Status Save(Step step, absl::Span<const float> residual);

  // What this job's slot has left here; nothing if there is none of this job. DATA_LOSS, in one
  // sentence: the file is damaged, or not of `elements` elements.
  absl::StatusOr<std::optional<Saved>> Load(int64_t elements) const;

  // The job is done: nobody will ask. OK if there is none.
  absl::Status Remove();

  const std::string& path() const { return path_; }

 private:
  FileSystem* const files_;
  const std::string directory_;
  const uint64_t job_id_;
  const SlotId slot_;
  const std::string path_;
};

}  // namespace torchps
