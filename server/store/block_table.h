#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/block_map.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "server/store/block.h"
#include "server/store/block_updater.h"

namespace torchps {

// The blocks of one server, in ascending order, with memory for their values and for the optimizer.
//
// Thread-safe; each block has its own lock. Which blocks there are never changes.
class BlockTable {
 public:
  // The blocks that `map` gives to `server`.
  BlockTable(const BlockMap& map, int server, const BlockUpdater& updater);
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  size_t size() const { return blocks_.size(); }
  // REQUIRES: `index` < size().
  Block& operator[](size_t index) const { return *blocks_[index]; }
  std::vector<std::unique_ptr<Block>>::const_iterator begin() const { return blocks_.begin(); }
  std::vector<std::unique_ptr<Block>>::const_iterator end() const { return blocks_.end(); }

  // The block of that number; null where another server owns it, or none.
  Block* Find(BlockId id) const { return id < by_id_.size() ? by_id_[id] : nullptr; }
  // Of the whole model.
  size_t blocks_of_all_servers() const { return by_id_.size(); }

  // A block has its first values. To be called once for each, outside its lock.
  void CountInitialized();
  // Every block has values.
  bool initialized() const;

  int64_t largest_block_bytes() const { return largest_block_bytes_; }
  // Arrays of the optimizer, of the block that has most.
  size_t max_slots() const { return max_slots_; }
  // Values and the optimizer's arrays.
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
