#include "torchps/transport/shared_layout.h"

#include "torchps/transport/shared_segment.h"

namespace torchps {

SharedMemory EncodeOffer(const SharedSegment::Offer& offer) {
  SharedMemory message;
  message.set_pid(offer.pid);
  message.set_fd(offer.fd);
  message.set_bytes(offer.bytes);
  message.set_nonce(offer.nonce);
  return message;
}

SharedSegment::Offer DecodeOffer(const SharedMemory& message) {
  return {message.pid(), message.fd(), message.bytes(), message.nonce()};
}

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kCacheLineBytes = 64;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

PushSegmentLayout::PushSegmentLayout(const ModelLayout& layout)
    : buffer_bytes_(RoundUp(layout.size() * sizeof(float), kPageBytes)) {}

size_t PushSegmentLayout::bytes(int buffers) const { return BufferAt(buffers); }

size_t PushSegmentLayout::BufferAt(int buffer) const {
  return SharedSegment::kHeaderBytes + buffer * buffer_bytes_;
}

size_t PushSegmentLayout::GetOffset(const BlockRange& block, int buffer) const {
  return BufferAt(buffer) + block.offset * sizeof(float);
}

ValueSegmentLayout::ValueSegmentLayout(const BlockMap& map, int server) {
  const std::vector<BlockId>& owned = map.owned_by(server);
  // The values begin at a page. Blocks of the usual sizes, which are multiples of the page size,
  // then all begin at pages.
  size_t end = RoundUp(GetHead(owned.size()), kPageBytes);
  values_.reserve(owned.size());
  for (const BlockId id : owned) {
    values_.push_back(end);
    end = RoundUp(end + map.blocks()[id].length * sizeof(float), kCacheLineBytes);
  }
  bytes_ = RoundUp(end, kPageBytes);
}

size_t ValueSegmentLayout::GetHead(size_t index) const {
  return SharedSegment::kHeaderBytes + index * sizeof(SharedBlock);
}

}  // namespace torchps
