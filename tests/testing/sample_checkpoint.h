#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torchps/checkpoint/checkpoint_reader.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Describes a small model after some training, with checkpoints of it. Each number is different, so
// a test detects a mix-up.
struct SampleModel {
  static constexpr uint64_t kJobId = 0x1234'5678'9abc'def0;

  explicit SampleModel(int64_t block_bytes = 256);

  BlockMap Cut(int servers) const;
  // Returns the block `range` of `values` and `slots`. Version and ledger depend on the block and
  // on `age`, so that a test can tell checkpoints with different ages apart.
  BlockBuffer Block(const BlockRange& range, int64_t age) const;

  ModelLayout layout;
  int64_t block_bytes;
  std::vector<float> values;              // the flat vector
  std::vector<std::vector<float>> slots;  // the optimizer's arrays, for the trained elements
  std::vector<int64_t> missed;            // for each trained element: steps that missed it
};

// Writes the shard of server `server` of `servers`, with these blocks.
absl::StatusOr<ShardInfo> WriteShard(FileSystem& files, const std::string& directory,
                                     uint64_t checkpoint, int server, int servers,
                                     const std::vector<BlockBuffer>& blocks);

// Returns the manifest that a coordinator writes for these shards.
Manifest MakeManifest(const SampleModel& model, uint64_t checkpoint,
                      const std::vector<ShardInfo>& shards);

// Writes a complete checkpoint of the model, like `servers` servers and a coordinator.
absl::Status WriteCheckpoint(FileSystem& files, const std::string& directory, uint64_t checkpoint,
                             int servers, const SampleModel& model, int64_t age = 0);

// The state that RestoreServer() read: the checkpoint's number, the reasons for passing over newer
// checkpoints, and the server's blocks.
struct RestoredServer {
  uint64_t checkpoint = 0;
  std::vector<std::string> passed_over;
  std::vector<BlockBuffer> blocks;
};
// Restores the state of server `server` from the newest usable checkpoint in `directory`.
absl::StatusOr<RestoredServer> RestoreServer(FileSystem& files, const std::string& directory,
                                             const SampleModel& model, int server, int servers);

}  // namespace torchps
