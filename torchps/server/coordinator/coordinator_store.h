#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Stores the coordinator's state on disk, in two files of the same format:
//
//   DIR/coordinator.state   the last synced state: survives a power failure
//   DIR/coordinator.recent  the last state, not synced: survives the end of the process
//
// Two files are needed because a file that is replaced without a sync may be empty after a power
// failure. Each file contains a magic word, the CRC-32C of the rest, and a serialized
// CoordinatorState. Load() returns the newest intact state.
//
// Thread-compatible. Holds DIR/coordinator.lock, so that only one process at a time is the
// coordinator.
class CoordinatorStore {
 public:
  // Opens the store and creates `directory` if it does not exist. `files` must outlive the store.
  // Returns UNAVAILABLE if another process holds the lock or the disk does not respond; otherwise
  // passes on errors from FileSystem.
  static absl::StatusOr<std::unique_ptr<CoordinatorStore>> Open(FileSystem* files,
                                                                const std::string& directory);

  // Returns the last state written, or nullopt if the files do not exist. If coordinator.state is
  // damaged, returns the state in coordinator.recent, and sets `damage` to a sentence about it.
  // Returns DATA_LOSS if there is no intact state.
  absl::StatusOr<std::optional<CoordinatorState>> Load(std::string* damage = nullptr) const;

  // Replaces the newest state atomically: in coordinator.recent and, if `sync` is true, first in
  // coordinator.state, so that it also survives a power failure.
  absl::Status Write(const CoordinatorState& state, bool sync);

  // Makes coordinator.state survive a power failure. The previous process may have ended after it
  // replaced the file and before it synced the directory. Returns the revision of the state in the
  // file, which may be lower than the revision in coordinator.recent. Returns NOT_FOUND if the file
  // does not exist, and the errors of Load().
  absl::StatusOr<uint64_t> Sync();

  const std::string& path() const { return state_path_; }

 private:
  CoordinatorStore(FileSystem* files, const std::string& directory);

  absl::StatusOr<std::optional<CoordinatorState>> LoadFrom(const std::string& path) const;
  absl::Status WriteRecent(const std::string& text);

  FileSystem* const files_;
  const std::string state_path_;
  const std::string recent_path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace torchps
