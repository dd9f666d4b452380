#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/block_image.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard_reader.h"
#include "common/block_map.h"
#include "common/model_layout.h"
#include "common/types.h"
#include "proto/checkpoint.pb.h"
#include "storage/file_system.h"

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
  int slots() const { return slots_; }

  // Returns the block in blocks() that contains this element.
  BlockId BlockAt(int64_t element) const;

  // REQUIRES: `block` overlaps a range in `needed`. Returns DATA_LOSS like ShardReader.
  absl::Status ReadBlock(BlockId block, BlockBuffer* out) const;
  absl::Status ReadValues(BlockId block, std::vector<float>* out) const;

 private:
  CheckpointReader(Manifest manifest, ManifestBlocks cut);

  const Manifest manifest_;
  const ManifestBlocks cut_;
  int slots_ = 0;
  std::vector<std::unique_ptr<ShardReader>> shards_;  // by server; null if not needed
};

}  // namespace torchps
