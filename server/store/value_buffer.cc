#include "server/store/value_buffer.h"

#include <utility>

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

}  // namespace torchps
