#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/block_buffer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard_reader.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/model_layout.h"
#include "proto/checkpoint.pb.h"
#include "storage/file_system.h"

namespace torchps {

// One checkpoint with some or all of its shards, which may lie in several directories. Everything
// that it opens has been read and checked.
//
// Thread-compatible.
class CheckpointReader {
 public:
  // Opens the shards of those servers of the manifest that own one of the blocks (of the manifest's
  // cut) that overlap elements of `needed`. `directories` are looked through in their order for
  // each shard: DIR/checkpoint-N/. NOT_FOUND: a shard is in none of them; DATA_LOSS: one is
  // damaged.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      FileSystem* files, const std::vector<std::string>& directories, Manifest manifest,
      const std::vector<BlockRange>& needed);

  const Manifest& manifest() const { return manifest_; }
  const ModelLayout& layout() const { return cut_.layout; }
  // The manifest's cut.
  const std::vector<BlockRange>& blocks() const { return cut_.blocks.blocks(); }
  int slots() const { return slots_; }

  // The block of blocks() that has this element.
  BlockId BlockAt(int64_t element) const;

  // REQUIRES: `block` overlaps what Open was told to be needed. DATA_LOSS as ShardReader.
  absl::Status ReadBlock(BlockId block, BlockBuffer* out) const;
  absl::Status ReadValues(BlockId block, std::vector<float>* out) const;

 private:
  CheckpointReader(Manifest manifest, ManifestBlocks cut);

  const Manifest manifest_;
  const ManifestBlocks cut_;
  int slots_ = 0;
  std::vector<std::unique_ptr<ShardReader>> shards_;  // by server; null: not needed
};

}  // namespace torchps
