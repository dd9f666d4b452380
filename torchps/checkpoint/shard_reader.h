#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/checkpoint/shard_writer.h"
#include "torchps/common/block_map.h"
#include "torchps/common/missed_steps.h"
#include "torchps/common/types.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Reads a shard that ShardWriter wrote. Does not trust the file: if any part is invalid, it does
// not return values.
//
// Thread-compatible; several threads may call ReadBlock at once.
class ShardReader {
 public:
  // Reads the whole file once. The shard must match `header`, the bytes and crc32c in the
  // manifest's `info`, and `blocks`, which the manifest's layout determines. Returns FileSystem's
  // errors, such as NOT_FOUND. DATA_LOSS: the file is damaged, truncated or a different shard; the
  // message contains the file and the reason.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(FileSystem* files,
                                                           const std::string& path,
                                                           const ShardHeader& header,
                                                           const ShardInfo& info,
                                                           std::vector<BlockRange> blocks);

  // As passed to Open.
  const std::vector<BlockRange>& blocks() const { return blocks_; }
  // Number of optimizer arrays of each trained block. Averaged blocks do not have any.
  int slots() const { return slots_; }
  Version version(size_t i) const { return versions_[i]; }
  absl::Span<const LedgerEntry> ledger(size_t i) const { return ledgers_[i]; }

  // Reads block i of blocks() into `out` and reuses the memory. DATA_LOSS: the file changed after
  // Open.
  absl::Status ReadBlock(size_t i, BlockBuffer* out) const;
  // Reads only the values of block i.
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
  std::vector<size_t> tensor_;  // index of each block's values; the optimizer arrays follow
  std::vector<Version> versions_;
  std::vector<std::vector<LedgerEntry>> ledgers_;
  std::vector<std::vector<MissedRun>> missed_;
};

}  // namespace torchps
