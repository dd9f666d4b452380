#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/checkpoint.pb.h"
#include "storage/file_system.h"

namespace torchps {

// The directory that ps_server --dir names: what is called how in it, which checkpoints it has, and
// how they come and go. The servers of a job may share one, or have one each.
//
//   DIR/server-0.lock ...  coordinator.lock  coordinator.state
//   DIR/checkpoint-000000000012/server-0-of-2.safetensors  server-1-of-2.safetensors  MANIFEST.json
//   DIR/log-0-of-2/           server/push_log/log_segment.h names what is in it
//
// A checkpoint exists when its manifest does. Thread-safe: it holds no state, and several processes
// may work in one directory. Errors are those of FileSystem.
class CheckpointDirectory {
 public:
  // `files` must outlive this.
  CheckpointDirectory(FileSystem* files, std::string path);

  const std::string& path() const { return path_; }
  FileSystem& files() const { return *files_; }

  // --- Names ---

  static std::string ShardName(int server_index, int server_count);
  std::string ServerLockPath(int server_index) const;
  std::string CoordinatorLockPath() const;
  std::string CoordinatorStatePath() const;
  std::string CheckpointPath(uint64_t checkpoint) const;
  std::string ManifestPath(uint64_t checkpoint) const;
  std::string ShardPath(uint64_t checkpoint, int server_index, int server_count) const;
  std::string LogPath(int server_index, int server_count) const;

  // --- Writing ---

  // DIR itself, if it is not there.
  absl::Status Prepare() const;
  // The directory that checkpoint's shards go to. ALREADY_EXISTS: that checkpoint is complete, and
  // stays as it is; take a higher number.
  absl::Status PrepareCheckpoint(uint64_t checkpoint) const;
  // Completes a checkpoint: the manifest is checked, written and read back. OK if the same one is
  // there already. INVALID_ARGUMENT: no manifest, or another checkpoint's. ALREADY_EXISTS: it has
  // another one.
  absl::Status WriteManifest(uint64_t checkpoint, absl::string_view text) const;

  // What is there of a checkpoint stays there over a power cut: to be called before anything is
  // built on a checkpoint whose completion may have failed at its last sync.
  absl::Status Sync(uint64_t checkpoint) const;

  // --- Reading ---

  // Those that have a manifest, ascending; also those whose manifest will turn out to be damaged.
  // Empty if there is no such directory.
  absl::StatusOr<std::vector<uint64_t>> Complete() const;
  // The highest number that any checkpoint has here, complete or not; 0: none. The next one must
  // have a higher one.
  absl::StatusOr<uint64_t> HighestNumber() const;
  // The manifest of one, checked. NOT_FOUND: there is none.
  absl::StatusOr<Manifest> ReadManifest(uint64_t checkpoint) const;
  // The newest checkpoint whose manifest is whole and that `usable` takes. One for which that is
  // NOT_FOUND or DATA_LOSS is passed over for an older one, and what is wrong with it is appended
  // to `passed_over` as a sentence; any other error is the result. NOT_FOUND: there is no
  // checkpoint. DATA_LOSS: there are, and none will do; the sentences are in it.
  absl::StatusOr<Manifest> Newest(const std::function<absl::Status(const Manifest&)>& usable,
                                  std::vector<std::string>* passed_over) const;

  // --- Removing ---

  // Removes what this server has of checkpoints below `newest` that are not in `keep`: their
  // manifest first, then its shards (and those of a larger cluster of before), then the directory
  // once it is empty. Nothing goes before the manifest of `newest` has been read back and all of
  // its shards that are here have their size (ShardWriter has read them back before the manifest
  // was made); if not, that is the error, and all others stay.
  absl::Status Prune(int server_index, int server_count, uint64_t newest,
                     const std::vector<uint64_t>& keep) const;

  // Removes what this server has of checkpoints other than `checkpoint` that have no manifest: of
  // attempts that failed, whole or not. Some may have a higher number: a coordinator that could not
  // save its state, and came back with an older one, counts from there. REQUIRES: none of those is
  // under way.
  absl::Status RemoveFailed(uint64_t checkpoint, int server_index, int server_count) const;

  // Makes a checkpoint one that does not exist, whichever server has parts of it.
  absl::Status RemoveManifest(uint64_t checkpoint) const;

  // Removes this server's shards of all checkpoints above `checkpoint` that are not in `except`, so
  // that they can never be completed: for a server that has begun from `checkpoint`, and has told
  // all that what came later is lost.
  absl::Status RemoveShardsAbove(uint64_t checkpoint, const std::vector<uint64_t>& except,
                                 int server_index, int server_count) const;

 private:
  absl::StatusOr<std::vector<uint64_t>> Numbers() const;
  absl::Status CheckPresentShards(const Manifest& manifest) const;
  absl::Status PruneOne(uint64_t checkpoint, int server_index, int server_count) const;

  FileSystem* const files_;
  const std::string path_;
};

}  // namespace torchps
