#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/checkpoint/shard_reader.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Reads one checkpoint with some or all of the shards, which may be in several directories. Open
// reads and checks each shard completely.
//
// Thread-compatible.
class CheckpointReader {
 public:
  // Opens the shards that contain elements of `needed`. Searches `directories` (DIR/checkpoint-N/)
  // in the given order for each shard. NOT_FOUND: a shard is missing in all directories. DATA_LOSS:
  // a shard is damaged.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      FileSystem* files, const std::vector<std::string>& directories, Manifest manifest,
      const std::vector<BlockRange>& needed);

  const Manifest& manifest() const { return manifest_; }
  const ModelLayout& layout() const { return cut_.layout; }
  // The blocks as the manifest divides the model. They may differ from the blocks of the running
  // job.
  const std::vector<BlockRange>& blocks() const { return cut_.blocks.blocks(); }
  // Number of optimizer arrays of each trained block.
  int slots() const { return slots_; }

  // Returns the block in blocks() that contains this element.
  BlockId BlockAt(int64_t element) const;

  // Read a block of blocks(), or only its values, into `out`. REQUIRES: the block overlaps a range
  // in `needed`. Return DATA_LOSS if the file changed after Open.
  absl::Status ReadBlock(BlockId block, BlockBuffer* out) const;
  absl::Status ReadValues(BlockId block, std::vector<float>* out) const;

 private:
  CheckpointReader(Manifest manifest, ManifestBlocks cut);

  const Manifest manifest_;
  const ManifestBlocks cut_;
  int slots_ = 0;
  std::vector<std::unique_ptr<ShardReader>> shards_;  // by server; null if not needed
};

// Restores one server's blocks from the newest usable checkpoint, written by any number of servers.
// A checkpoint is usable if all shards that this server needs are present and undamaged.
//
// If the checkpoint divides the model differently, blocks are assembled element by element. The
// version, and each slot's ledger entry, are then the highest of the overlapping old blocks. This
// is safe: the division changes only if a whole job resumes on another number of servers, and then
// no worker has a push in progress.
//
// Thread-compatible.
class Restore {
 public:
  struct Request {
    std::string directory;
    uint64_t job_id = 0;
    const ModelLayout* layout = nullptr;  // needed only during Open
    const BlockMap* blocks = nullptr;     // needed only during Open
    int server_index = 0;
    // If above 0, the whole job resumed from this checkpoint, and `incarnation` was assigned after
    // that. Open then accepts only this checkpoint or a checkpoint that the job wrote later. With
    // any other checkpoint, this server's blocks could be from another history than the other
    // servers'.
    uint64_t resumed_checkpoint = 0;
    Incarnation incarnation = 0;
  };

  // Reads and checks all shards that this server needs. `files` must outlive the result.
  //   NOT_FOUND            the directory does not contain a checkpoint: the server starts new
  //   FAILED_PRECONDITION  the directory belongs to another job or another model
  //   DATA_LOSS            all checkpoints are unusable, or the job resumed from a checkpoint that
  //                        is missing; the message lists the reasons
  static absl::StatusOr<std::unique_ptr<Restore>> Open(FileSystem* files, const Request& request);

  const Manifest& manifest() const { return reader_->manifest(); }
  uint64_t checkpoint() const { return manifest().checkpoint(); }
  // Reasons why newer checkpoints were not used, as sentences; empty if this is the newest.
  const std::vector<std::string>& passed_over() const { return passed_over_; }
  // Number of optimizer arrays of each trained block.
  int slots() const { return reader_->slots(); }

  // The server's blocks, ascending. ReadBlock reads block i into `out` and reuses the memory.
  // DATA_LOSS: the file changed after Open.
  const std::vector<BlockRange>& blocks() const { return blocks_; }
  absl::Status ReadBlock(size_t i, BlockBuffer* out);

 private:
  Restore(std::unique_ptr<CheckpointReader> reader, std::vector<BlockRange> blocks,
          std::vector<std::string> passed_over);

  const std::unique_ptr<CheckpointReader> reader_;
  const std::vector<BlockRange> blocks_;
  const std::vector<std::string> passed_over_;
  BlockBuffer old_;  // one of the old blocks from which a block is assembled
};

}  // namespace torchps
