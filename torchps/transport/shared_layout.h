#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/transport/shared_segment.h"

// Conversion between a shared segment's offer and the message in Hello. Thread-safe.

// Memory layout of the segments that workers and servers share
// (torchps/transport/shared_segment.h). Both sides compute it from the parameters agreed in Hello,
// so offsets are never sent. Offsets count bytes from the beginning of the segment. Immutable and
// therefore thread-safe.

namespace torchps {

SharedMemory EncodeOffer(const SharedSegment::Offer& offer);
SharedSegment::Offer DecodeOffer(const SharedMemory& message);

// Header of a block in shared memory. One writer changes the block in place while readers in other
// processes copy it; readers detect a torn copy and discard it. This is a sequence lock: the
// sequence number is odd during a change. Writers exclude each other with a separate lock. Readers
// and writers never wait here. If a writer dies during a change, the number stays odd, and readers
// must get the values over the network.
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

// The layout of a worker's segment. It holds the pushed elements in one buffer, or in two
// alternating buffers (torchps/worker/device/gradient_outbox.h).
//
//   | header page | gradients, trained_size() floats, averaged values, averaged_size() floats |
//   | second buffer, same layout |
class PushSegmentLayout {
 public:
  static constexpr int kMaxBuffers = 2;

  explicit PushSegmentLayout(const ModelLayout& layout);

  // Returns the size of a segment with this many buffers.
  size_t bytes(int buffers = 1) const;

  // Returns the offset of a buffer. The averaged values follow the gradients.
  size_t BufferAt(int buffer) const;

  // Returns the offset of the block's `length` floats.
  size_t GetOffset(const BlockRange& block, int buffer = 0) const;

 private:
  size_t buffer_bytes_;
};

// The layout of a server's segment. It holds the values of the blocks that the server owns.
//
//   | header page | one SharedBlock per block | values of each block, from a cache line on |
class ValueSegmentLayout {
 public:
  ValueSegmentLayout(const BlockMap& map, int server);

  // Return the offsets of the SharedBlock and of the values of owned block number `index`, in the
  // order of BlockMap::owned_by.
  size_t GetHead(size_t index) const;
  size_t GetValues(size_t index) const { return values_[index]; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<size_t> values_;
  size_t bytes_;
};

}  // namespace torchps
