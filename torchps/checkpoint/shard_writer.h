#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/block_map.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Identifies the shard; stored in the shard's metadata.
struct ShardHeader {
  uint64_t job_id = 0;
  uint64_t checkpoint = 0;
  int server_index = 0;
  int server_count = 0;
};

// The size of one block in a shard.
struct ShardBlock {
  BlockRange range;
  int slots = 0;  // optimizer arrays
};

// Writes one server's blocks as a safetensors file, one block at a time, so that memory never holds
// a second copy of the model. docs/storage.md describes the format. The file is PATH.tmp until it
// is complete and synced; the destructor removes PATH.tmp if Finish did not succeed. Returns
// FileSystem's errors.
//
// Not thread-safe. Uses a few hundred bytes per block, and memory for the ledger.
class ShardWriter {
 public:
  // `files` must outlive the writer. `blocks` are all blocks of this server, ascending.
  // FAILED_PRECONDITION: the header cannot name that many blocks (the limit is about a million
  // tensors).
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(FileSystem* files, std::string path,
                                                             const ShardHeader& header,
                                                             std::vector<ShardBlock> blocks);

  // Returns the size of the shard in bytes, without the ledger and the table of missed steps.
  static int64_t LeastBytes(const ShardHeader& header, const std::vector<ShardBlock>& blocks);

  // Appends the next block. REQUIRES: its range and its number of arrays match `blocks`. After an
  // error the shard is unusable.
  absl::Status Append(const BlockImage& block);

  // Completes the file after the last block, syncs it and reads it back. Sets all fields of the
  // result except nonfinite_blocks and the two times.
  absl::StatusOr<ShardInfo> Finish();

 private:
  ShardWriter(FileSystem* files, std::unique_ptr<SafetensorsWriter> file, std::string path,
              const ShardHeader& header, std::vector<ShardBlock> blocks);

  FileSystem* const files_;
  const std::string path_;
  const ShardHeader header_;
  const std::vector<ShardBlock> blocks_;
  const std::unique_ptr<SafetensorsWriter> file_;
  size_t next_ = 0;  // index in blocks_
  uint64_t floats_ = 0;
  std::vector<Version> versions_;
  std::vector<int64_t> ledger_;  // the rows of the table, one after another
  std::vector<int64_t> missed_;  // the same for the missed steps
};

}  // namespace torchps
