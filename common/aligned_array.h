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

// An array of numbers that begins at a cache line, zeros at first. Thread-compatible; owns its
// memory, which stays where it is.
template <typename T>
class AlignedArray {
 public:
  static_assert(std::is_arithmetic_v<T>, "zero bytes are zeros");

  AlignedArray() = default;
  explicit AlignedArray(size_t size) : size_(size) {
    // As std::aligned_alloc wants it: whole lines. One at least, for no elements have an address
    // too.
    const size_t bytes = (size * sizeof(T) / kLineBytes + 1) * kLineBytes;
    data_.reset(static_cast<T*>(std::aligned_alloc(kLineBytes, bytes)));
    TPS_CHECK(data_ != nullptr, "there is memory");
    std::memset(data_.get(), 0, bytes);
  }

  size_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };

  size_t size_ = 0;
  std::unique_ptr<T[], Free> data_;
};

}  // namespace torchps
