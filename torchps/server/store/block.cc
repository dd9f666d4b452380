#include "torchps/server/store/block.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/common/element_runs.h"

namespace torchps {

class ValueBuffer::Loan {
 public:
  explicit Loan(std::shared_ptr<ValueBuffer> buffer) : buffer_(std::move(buffer)) {
    buffer_->loans_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Loan() { buffer_->loans_.fetch_sub(1, std::memory_order_release); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  const std::shared_ptr<ValueBuffer> buffer_;
};

ValueBuffer::ValueBuffer(size_t size) : size_(size), values_(AllocateAligned<float>(size)) {}

grpc::Slice ValueBuffer::Lend(const std::shared_ptr<ValueBuffer>& buffer) {
  return grpc::Slice(
      buffer->values_.get(), buffer->size_ * sizeof(float),
      [](void* loan) { delete static_cast<Loan*>(loan); }, new Loan(buffer));
}

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
