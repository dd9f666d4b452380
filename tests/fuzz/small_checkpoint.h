#pragma once

#include <vector>

#include "torchps/checkpoint/shard_writer.h"
#include "torchps/common/block_map.h"

namespace torchps {

// The shard that make_corpus writes and shard_fuzz.cc reads: two trained blocks and an averaged
// block.

inline ShardHeader SmallShardHeader() {
  ShardHeader header;
  header.job_id = 7;
  header.checkpoint = 3;
  header.server_index = 0;
  header.server_count = 1;
  return header;
}

inline std::vector<BlockRange> SmallShardBlocks() {
  std::vector<BlockRange> blocks(3);
  for (BlockId id = 0; id < 3; ++id) {
    blocks[id].id = id;
    blocks[id].offset = 8 * id;
    blocks[id].length = id == 2 ? 3 : 8;
    blocks[id].averaged = id == 2;
  }
  return blocks;
}

}  // namespace torchps
