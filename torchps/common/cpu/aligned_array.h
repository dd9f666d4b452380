#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "absl/types/span.h"
#include "torchps/common/check.h"

namespace torchps {

// Size of a cache line and the alignment for the widest vectors. A vector that crosses a cache line
// costs two accesses, and std::vector aligns only to 16 bytes.
inline constexpr size_t kLineBytes = 64;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// Array memory that begins at a cache line.
template <typename T>
using AlignedMemory = std::unique_ptr<T[], FreeMemory>;

// Allocates uninitialized memory for `size` numbers.
template <typename T>
AlignedMemory<T> AllocateAligned(size_t size) {
  static_assert(std::is_arithmetic_v<T>, "memory is numbers without being made so");
  // std::aligned_alloc requires a multiple of the alignment. The extra line gives an empty array a
  // valid address.
  const size_t bytes = (size * sizeof(T) / kLineBytes + 1) * kLineBytes;
  AlignedMemory<T> memory(static_cast<T*>(std::aligned_alloc(kLineBytes, bytes)));
  TPS_CHECK(memory != nullptr, "there is memory");
  return memory;
}

// An array of numbers aligned to a cache line and initialized to zero. Thread-compatible. Owns its
// memory; the memory address does not change.
template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t size) : size_(size), data_(AllocateAligned<T>(size)) {
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
