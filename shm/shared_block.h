#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "common/ids.h"

namespace torchps {

// The head of a block in shared memory: lets one writer change the block in place while readers in
// other processes copy it, so that no reader ever takes a torn block for a whole one (a sequence
// lock: the number is odd while the block is being changed). Writers exclude each other by a lock
// of their own. No thread ever waits here, so a writer that dies in the middle stops no reader: the
// number stays odd, and readers ask in another way.
//
// Lives in memory that is mapped at another address in each process; zeros are its initial state.
class alignas(64) SharedBlock {
 public:
  // Around every change of the values or the version. The values may be written by any stores,
  // streaming ones included.
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

  // Runs `copy`, which reads the values (and may read nonsense), unless the version is `have`
  // already. The version that was copied, or nothing: the block was being changed, the copy is
  // worthless, try again.
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
  // Streaming stores are ordered by nothing else on x86.
  static void FlushStreamingStores() {
#ifdef __SSE2__
    __builtin_ia32_sfence();
#endif
  }

  std::atomic<uint64_t> sequence_{0};
  std::atomic<Version> version_{0};
};

// Shared between processes, so it must not hide a lock that only one of them has.
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<Version>::is_always_lock_free);

}  // namespace torchps
