#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "common/ids.h"

namespace torchps {

// Header of a block in shared memory. One writer changes the block in place while readers in other
// processes copy it; readers detect a torn copy and discard it. This is a sequence lock: the
// sequence number is odd during a change. Writers exclude each other with a separate lock. Readers
// and writers never wait here. If a writer dies during a change, the number stays odd, and readers
// use another way to get the values.
//
// Mapped at different addresses in different processes. The initial state is all zeros.
class alignas(64) SharedBlock {
 public:
  // Begin and end each change of the values or the version. Any kind of store may write the values,
  // including streaming stores.
  void BeginChange() {
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  void EndChange(Version version) {
    FlushStreamingStores();
    version_.store(version, std::memory_order_relaxed);
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_release);
  }

  // Runs `copy`, which reads the values, unless the version is already `have`. Returns the copied
  // version. Returns nullopt if a change overlapped with the copy; the copied values are then
  // invalid, and the caller must retry.
  std::optional<Version> TryRead(Version have, absl::FunctionRef<void()> copy) const {
    const uint64_t sequence = sequence_.load(std::memory_order_acquire);
    if (sequence % 2 != 0) return std::nullopt;
    const Version version = version_.load(std::memory_order_relaxed);
    if (version != have) copy();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sequence_.load(std::memory_order_relaxed) != sequence) return std::nullopt;
    return version;
  }

 private:
  // On x86, only a fence orders streaming stores.
  static void FlushStreamingStores() {
#ifdef __SSE2__
    __builtin_ia32_sfence();
#endif
  }

  std::atomic<uint64_t> sequence_{0};
  std::atomic<Version> version_{0};
};

// The atomics must be lock-free because a lock inside them would not work across processes.
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<Version>::is_always_lock_free);

}  // namespace torchps
