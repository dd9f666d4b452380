#include "server/store/block.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/cpu/finite_check.h"
#include "common/element_runs.h"

namespace torchps {

void Block::MoveTo(absl::Span<float> shared_values, SharedBlock* shared_head) {
  shared_head->BeginChange();
  std::copy(values.begin(), values.end(), shared_values.begin());
  shared_head->EndChange(version);
  values = shared_values;
  head = shared_head;
  buffer = nullptr;
}

void Block::LookWhetherFinite() {
  finite = FirstNonFinite(values) < 0 &&
           std::all_of(slots.begin(), slots.end(),
                       [](const std::vector<float>& slot) { return FirstNonFinite(slot) < 0; });
}

void Block::PassOver(Version higher) {
  const BlockChange change(this);
  const ElementRun all = {0, range.length};
  if (!range.averaged) missed.Add(absl::MakeConstSpan(&all, 1), higher - version);
  version = higher;
}

BlockChange::BlockChange(Block* block) : block_(block) {
  if (block->head != nullptr) {
    block->head->BeginChange();
    return;
  }
  if (block->buffer != nullptr && !block->buffer->lent()) return;
  auto buffer = std::make_shared<ValueBuffer>(block->range.length);
  std::copy(block->values.begin(), block->values.end(), buffer->values().begin());
  block->values = buffer->values();
  block->buffer = std::move(buffer);
}

BlockChange::~BlockChange() {
  if (block_->head != nullptr) block_->head->EndChange(block_->version);
}

}  // namespace torchps
