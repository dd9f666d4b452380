#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/strings/string_view.h"
#include "common/check.h"

namespace torchps {

// Byte buffer that keeps its memory when cleared. New memory would cost page faults, and a vector's
// resize would zero it first. Not thread-safe.
class LogBuffer {
 public:
  size_t size() const { return size_; }
  uint8_t* data() { return bytes_.get(); }
  absl::string_view view() const { return {reinterpret_cast<const char*>(bytes_.get()), size_}; }

  // Appends `bytes` uninitialized bytes and returns their address. May move the existing bytes.
  uint8_t* Extend(size_t bytes) {
    if (size_ + bytes > capacity_) {
      capacity_ = std::max({size_ + bytes, 2 * capacity_, kLeastBytes});
      void* const moved = std::realloc(bytes_.release(), capacity_);
      TPS_CHECK(moved != nullptr, "no memory for the push log's buffer");
      bytes_.reset(static_cast<uint8_t*>(moved));
    }
    uint8_t* const begin = bytes_.get() + size_;
    size_ += bytes;
    return begin;
  }

  void Clear() { size_ = 0; }

 private:
  static constexpr size_t kLeastBytes = 64 << 10;

  struct Free {
    void operator()(uint8_t* bytes) const { std::free(bytes); }
  };

  std::unique_ptr<uint8_t, Free> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace torchps
