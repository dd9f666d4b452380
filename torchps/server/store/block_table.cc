#include "torchps/server/store/block_table.h"

#include <algorithm>

namespace torchps {

BlockTable::BlockTable(const BlockMap& map, int server, const BlockUpdater& updater)
    : by_id_(map.blocks().size(), nullptr) {
  for (const BlockId id : map.owned_by(server)) {
    blocks_.push_back(std::make_unique<Block>(map.blocks()[id]));
    Block* const block = blocks_.back().get();
    by_id_[id] = block;
    MutexLock lock(&block->mutex);
    updater.Allocate(block);
    largest_block_bytes_ =
        std::max<int64_t>(largest_block_bytes_, block->range.length * sizeof(float));
    max_slots_ = std::max(max_slots_, block->slots.size());
    state_bytes_ += block->range.length * sizeof(float) * (1 + block->slots.size());
  }
}

void BlockTable::CountInitialized() {
  MutexLock lock(&mutex_);
  ++initialized_;
}

bool BlockTable::initialized() const {
  MutexLock lock(&mutex_);
  return initialized_ == blocks_.size();
}

}  // namespace torchps
