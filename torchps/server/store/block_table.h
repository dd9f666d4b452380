#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "torchps/common/block_map.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/server/store/block.h"
#include "torchps/server/store/block_updater.h"

namespace torchps {

// Owns the blocks of one server, in ascending order, with their values and optimizer arrays.
//
// Thread-safe; each block contains a lock. The set of blocks never changes.
class BlockTable {
 public:
  // Creates the blocks that `map` assigns to `server`.
  BlockTable(const BlockMap& map, int server, const BlockUpdater& updater);
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  size_t size() const { return blocks_.size(); }
  // REQUIRES: `index` < size().
  Block& operator[](size_t index) const { return *blocks_[index]; }
  std::vector<std::unique_ptr<Block>>::const_iterator begin() const { return blocks_.begin(); }
  std::vector<std::unique_ptr<Block>>::const_iterator end() const { return blocks_.end(); }

  // Returns the block with this id; null if this server does not own it.
  Block* Find(BlockId id) const { return id < by_id_.size() ? by_id_[id] : nullptr; }
  // Number of blocks in the whole model.
  size_t blocks_of_all_servers() const { return by_id_.size(); }

  // Counts a block that got its first values. Must be called once per block, without the block's
  // lock.
  void CountInitialized();
  // True if each block is initialized.
  bool initialized() const;

  int64_t largest_block_bytes() const { return largest_block_bytes_; }
  // Largest number of optimizer arrays in any block.
  size_t max_slots() const { return max_slots_; }
  // Bytes of values and optimizer arrays.
  uint64_t state_bytes() const { return state_bytes_; }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> by_id_;
  int64_t largest_block_bytes_ = 0;
  size_t max_slots_ = 0;
  uint64_t state_bytes_ = 0;

  mutable Mutex mutex_;
  size_t initialized_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
