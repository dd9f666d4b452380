#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/block_buffer.h"
#include "checkpoint/restore.h"
#include "common/block_map.h"
#include "common/model_layout.h"
#include "proto/checkpoint.pb.h"
#include "storage/file_system.h"

namespace torchps {

// A small model in the state that some training has left it in, and its checkpoints. Every number
// in it is another one, so that nothing can be taken for something else.
struct SampleModel {
  static constexpr uint64_t kJobId = 0x1234'5678'9abc'def0;

  explicit SampleModel(int64_t block_bytes = 256);

  BlockMap Cut(int servers) const;
  // Block `range` as it is in `values` and `slots`, with a version and a ledger made of its offset
  // and `age`.
  BlockBuffer Block(const BlockRange& range, int64_t age) const;

  ModelLayout layout;
  int64_t block_bytes;
  std::vector<float> values;              // the flat vector
  std::vector<std::vector<float>> slots;  // the optimizer's, over the trained elements
  std::vector<int64_t> missed;            // steps of each trained element, 0 for many
};

// Server k's shard of a checkpoint of these blocks.
absl::StatusOr<ShardInfo> WriteShard(FileSystem& files, const std::string& directory,
                                     uint64_t checkpoint, int server, int servers,
                                     const std::vector<BlockBuffer>& blocks);

// The manifest that a coordinator makes of shards.
Manifest MakeManifest(const SampleModel& model, uint64_t checkpoint,
                      const std::vector<ShardInfo>& shards);

// A whole checkpoint of the model, as `servers` servers and the coordinator write it.
absl::Status WriteCheckpoint(FileSystem& files, const std::string& directory, uint64_t checkpoint,
                             int servers, const SampleModel& model, int64_t age = 0);

// Everything that server k of `servers` restores.
struct RestoredServer {
  uint64_t checkpoint = 0;
  std::vector<std::string> passed_over;
  std::vector<BlockBuffer> blocks;
};
absl::StatusOr<RestoredServer> RestoreServer(FileSystem& files, const std::string& directory,
                                             const SampleModel& model, int server, int servers);

}  // namespace torchps
