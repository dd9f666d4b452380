#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "absl/types/span.h"
#include "common/check.h"

namespace torchps {

// Where a cache line begins, and where the widest vectors are to begin: one that lies across two
// lines costs two accesses, and std::vector begins 16 bytes behind a line.
inline constexpr size_t kLineBytes = 64;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// Numbers that begin at a cache line.
template <typename T>
using AlignedMemory = std::unique_ptr<T[], FreeMemory>;

// Memory for `size` numbers, not yet written.
template <typename T>
AlignedMemory<T> AllocateAligned(size_t size) {
  static_assert(std::is_arithmetic_v<T>, "memory is numbers without being made so");
  // As std::aligned_alloc wants it: whole lines. One at least, for no elements have an address too.
  const size_t bytes = (size * sizeof(T) / kLineBytes + 1) * kLineBytes;
  AlignedMemory<T> memory(static_cast<T*>(std::aligned_alloc(kLineBytes, bytes)));
  TPS_CHECK(memory != nullptr, "there is memory");
  return memory;
}

// An array of numbers that begins at a cache line, zeros at first. Thread-compatible; owns its
// memory, which stays where it is.
template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t size) : size_(size), data_(AllocateAligned<T>(size)) {
    // Zero bytes are zeros.
    std::memset(data_.get(), 0, size * sizeof(T));
  }

  size_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  size_t size_ = 0;
  AlignedMemory<T> data_;
};

}  // namespace torchps
