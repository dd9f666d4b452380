#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/block_image.h"
#include "checkpoint/safetensors_writer.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "proto/parameter_service.pb.h"
#include "storage/file_system.h"

namespace torchps {

// Whose part of which checkpoint a shard is; in its metadata.
struct ShardHeader {
  uint64_t job_id = 0;
  uint64_t checkpoint = 0;
  int server_index = 0;
  int server_count = 0;
};

// What a shard will have of one block.
struct ShardBlock {
  BlockRange range;
  int slots = 0;  // arrays of the optimizer
};

// Writes one server's blocks as a safetensors file, one block after the other, so that no second
// copy of the model is ever in memory; docs/storage.md has the format. The file has its name
// only when it is whole and on the disk: until then it is PATH.tmp, which a writer that is
// destroyed before it has finished takes away. Errors are those of FileSystem.
//
// Not thread-safe. Keeps some hundred bytes for each block, and its ledger.
class ShardWriter {
 public:
  // `files` must outlive the writer. `blocks` are all blocks of this server, in ascending order.
  // FAILED_PRECONDITION: more blocks than a safetensors header can name (about a million
  // tensors).
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(FileSystem* files, std::string path,
                                                             const ShardHeader& header,
                                                             std::vector<ShardBlock> blocks);

  // The least that such a shard takes on the disk; ledgers come on top.
  static int64_t LeastBytes(const ShardHeader& header, const std::vector<ShardBlock>& blocks);

  // The next block. REQUIRES: range and arrays are as announced. After an error the shard is lost.
  absl::Status Append(const BlockImage& block);

  // After the last block: completes the file, syncs it and reads it back. Every field but the two
  // times is set.
  absl::StatusOr<ShardInfo> Finish();

 private:
  ShardWriter(FileSystem* files, std::unique_ptr<SafetensorsWriter> file, std::string path,
              const ShardHeader& header, std::vector<ShardBlock> blocks);

  FileSystem* const files_;
  const std::string path_;
  const ShardHeader header_;
  const std::vector<ShardBlock> blocks_;
  const std::unique_ptr<SafetensorsWriter> file_;
  size_t next_ = 0;  // in blocks_
  uint64_t floats_ = 0;
  std::vector<Version> versions_;
  std::vector<int64_t> ledger_;  // rows, as the next one
  std::vector<int64_t> missed_;
};

}  // namespace torchps
