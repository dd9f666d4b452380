#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Manages the directory that ps_server --dir names: file names, and creating, finding and removing
// checkpoints. The servers of a job may share one directory or use separate directories.
//
//   DIR/server-0.lock ...  coordinator.lock  coordinator.state
//   DIR/checkpoint-000000000012/server-0-of-2.safetensors  server-1-of-2.safetensors  MANIFEST.json
//   DIR/log-0-of-2/           see torchps/server/push_log/log_segment.h
//
// A checkpoint is complete if the manifest exists. Thread-safe: the object is stateless, and
// several processes may work in one directory. All functions also return FileSystem's errors.
class CheckpointDirectory {
 public:
  // `files` must outlive this object.
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

  // Creates DIR if it does not exist.
  absl::Status Prepare() const;
  // Creates the directory for the checkpoint's shards. ALREADY_EXISTS: this checkpoint is complete
  // and stays unchanged; use a higher number.
  absl::Status PrepareCheckpoint(uint64_t checkpoint) const;
  // Completes a checkpoint: checks and writes the manifest, then reads it back. Returns OK if the
  // same manifest exists already. INVALID_ARGUMENT: `text` is not a manifest, or belongs to another
  // checkpoint. ALREADY_EXISTS: the checkpoint contains a different manifest.
  absl::Status WriteManifest(uint64_t checkpoint, absl::string_view text) const;

  // Syncs the directories of a complete checkpoint. Call this before restoring from it, because the
  // sync after writing the manifest may have failed.
  absl::Status Sync(uint64_t checkpoint) const;

  // --- Reading ---

  // Returns the checkpoints that contain a manifest, ascending. Does not check the manifests.
  // Returns an empty list if the directory does not exist.
  absl::StatusOr<std::vector<uint64_t>> Complete() const;
  // Returns the highest checkpoint number in the directory, complete or not, or 0 if there are no
  // checkpoints. The next checkpoint must use a higher number.
  absl::StatusOr<uint64_t> HighestNumber() const;
  // Reads and checks a checkpoint's manifest. NOT_FOUND: the manifest does not exist.
  absl::StatusOr<Manifest> ReadManifest(uint64_t checkpoint) const;
  // Reads a server's shard. Returns true if it has the manifest's checksum.
  bool HasShard(const Manifest& manifest, int server_index) const;
  // Returns the manifest of the newest checkpoint that is undamaged and accepted by `usable`. If a
  // manifest is damaged, or `usable` returns NOT_FOUND or DATA_LOSS, appends the reason to
  // `passed_over` as a sentence and continues with the next older checkpoint. Returns any other
  // error. NOT_FOUND: the directory does not contain a checkpoint. DATA_LOSS: all checkpoints are
  // unusable; the message lists the reasons.
  absl::StatusOr<Manifest> Newest(const std::function<absl::Status(const Manifest&)>& usable,
                                  std::vector<std::string>* passed_over) const;

  // --- Removing ---

  // Removes this server's files of checkpoints below `newest` that are not in `keep`. For each
  // checkpoint, removes the manifest, then the shards (including this server's share of an earlier,
  // larger cluster's shards), then the directory if it is empty. Before removing any file, reads
  // back the manifest of `newest` and checks the size of the shards in this directory. Their
  // contents need no check, because ShardWriter read them back before the manifest was written. If
  // a check fails, returns the error and does not remove anything.
  absl::Status Prune(int server_index, int server_count, uint64_t newest,
                     const std::vector<uint64_t>& keep) const;

  // Removes this server's files of failed checkpoints: all checkpoints without a manifest, except
  // `checkpoint`. Some of these may have a higher number than `checkpoint`, if the coordinator
  // could not save its newest state and restarted from an older one. REQUIRES: no checkpoint other
  // than `checkpoint` is in progress.
  absl::Status RemoveFailed(uint64_t checkpoint, int server_index, int server_count) const;

  // Invalidates a checkpoint by removing the manifest.
  absl::Status RemoveManifest(uint64_t checkpoint) const;

  // Removes this server's shards of all checkpoints above `checkpoint`, except those in `except`,
  // so that these checkpoints can never be completed. Called by a server that restored `checkpoint`
  // and reported later updates as lost.
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
