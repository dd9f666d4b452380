#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "storage/file_system.h"

namespace torchps {

// Where the coordinator's state lies on the disk, in two files of one form:
//
//   DIR/coordinator.state   the last one that was synced: survives a power cut
//   DIR/coordinator.recent  the last one that was not: survives the end of the process
//
// Two, since a file that is replaced without a sync may be empty after a power cut. Each is a magic
// word, the CRC-32C of what follows, and a CoordinatorState as Protobuf writes it. What is read is
// the newest of those that are whole.
//
// Thread-compatible. Holds DIR/coordinator.lock, so that one process at a time is the coordinator.
class CoordinatorStore {
 public:
  // Makes `directory` if need be. `files` must outlive this. UNAVAILABLE: another process holds the
  // lock, or the disk does not answer; others as in FileSystem.
  static absl::StatusOr<std::unique_ptr<CoordinatorStore>> Open(FileSystem* files,
                                                                const std::string& directory);

  // The last state that was written; none: nothing ever was. DATA_LOSS: what is there is damaged.
  absl::StatusOr<std::optional<CoordinatorState>> Load() const;

  // Puts `state` there as the newest, entirely or not at all; with `sync` so that it survives a
  // power cut.
  absl::Status Write(const CoordinatorState& state, bool sync);

  // Makes sure that the last state that was synced survives a power cut: the process that wrote it
  // may have ended before its last sync, or that one may have failed. Returns its revision, which
  // may be below that of the newest. NOT_FOUND: none ever was; others as Load().
  absl::StatusOr<uint64_t> Sync();

  const std::string& path() const { return state_path_; }

 private:
  CoordinatorStore(FileSystem* files, const std::string& directory);

  absl::StatusOr<std::optional<CoordinatorState>> LoadFrom(const std::string& path) const;

  FileSystem* const files_;
  const std::string state_path_;
  const std::string recent_path_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace torchps
