#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/block_buffer.h"
#include "checkpoint/safetensors_reader.h"
#include "checkpoint/shard_writer.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "common/missed_steps.h"
#include "storage/file_system.h"

namespace torchps {

// Reads what a ShardWriter has written, and trusts nothing: not one value comes out of a file of
// which anything is not as it should be.
//
// Thread-compatible; ReadBlock may be called by several threads at once.
class ShardReader {
 public:
  // Reads the whole file once. `header` is what the shard must say of itself, `info` what the
  // manifest says of it (bytes, crc32c), `blocks` the blocks that it must have, by the manifest's
  // layout. NOT_FOUND, and FileSystem's codes; DATA_LOSS, with file and reason: damaged, cut off,
  // or of something else.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(FileSystem* files,
                                                           const std::string& path,
                                                           const ShardHeader& header,
                                                           const ShardInfo& info,
                                                           std::vector<BlockRange> blocks);

  // As given to Open.
  const std::vector<BlockRange>& blocks() const { return blocks_; }
  // Arrays of the optimizer that every trained block has; averaged ones have none.
  int slots() const { return slots_; }
  Version version(size_t i) const { return versions_[i]; }
  absl::Span<const LedgerEntry> ledger(size_t i) const { return ledgers_[i]; }

  // Block i of blocks() into `out`, whose room is used again. Checked anew against what Open read:
  // DATA_LOSS if the disk gives something else now.
  absl::Status ReadBlock(size_t i, BlockBuffer* out) const;
  // Its values alone.
  absl::Status ReadValues(size_t i, std::vector<float>* out) const;

 private:
  explicit ShardReader(std::unique_ptr<SafetensorsReader> file) : file_(std::move(file)) {}
  absl::Status Index(const ShardHeader& header, std::vector<BlockRange> blocks);
  absl::Status IndexVersions(size_t tensor);
  absl::Status IndexLedger(size_t tensor);
  absl::Status IndexMissed(size_t tensor);
  absl::Status Damaged(absl::string_view what) const;

  const std::unique_ptr<SafetensorsReader> file_;
  std::vector<BlockRange> blocks_;
  int slots_ = 0;
  std::vector<size_t> tensor_;  // of each block's values; its slots follow
  std::vector<Version> versions_;
  std::vector<std::vector<LedgerEntry>> ledgers_;
  std::vector<std::vector<MissedRun>> missed_;
};

}  // namespace torchps
