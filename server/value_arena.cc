#include "server/value_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<std::unique_ptr<ValueArena>> ValueArena::Create(const BlockMap& map, int server,
                                                               bool may_be_shared) {
  auto arena = absl::WrapUnique(new ValueArena(map, server));
  const size_t bytes = arena->layout_.bytes();
  if (may_be_shared) {
    auto segment = SharedSegment::Create("torchps-values", bytes);
    if (segment.ok()) {
      arena->segment_ = *std::move(segment);
      arena->data_ = arena->segment_->data();
      return arena;
    }
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, /*fd=*/-1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for the ", bytes >> 20, " MiB of this server's values: ", std::strerror(errno)));
  }
  arena->data_ = static_cast<uint8_t*>(memory);
  return arena;
}

ValueArena::ValueArena(const BlockMap& map, int server) : layout_(map, server) {
  for (const BlockId id : map.owned_by(server)) lengths_.push_back(map.blocks()[id].length);
}

ValueArena::~ValueArena() {
  if (segment_ == nullptr && data_ != nullptr) munmap(data_, layout_.bytes());
}

absl::Span<float> ValueArena::values(size_t index) const {
  return absl::MakeSpan(reinterpret_cast<float*>(data_ + layout_.ValuesOf(index)), lengths_[index]);
}

SharedBlock* ValueArena::head(size_t index) const {
  return reinterpret_cast<SharedBlock*>(data_ + layout_.HeadOf(index));
}

}  // namespace torchps
