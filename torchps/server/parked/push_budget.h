#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "torchps/server/parked/byte_budget.h"

namespace torchps {

// Bounds the memory that a server holds for frames of pushes, from the request to gRPC until the
// frame is applied. Three shares have separate limits, so that stalled pushes and unverified
// connections cannot use the bytes of working pushes:
//
//   share        frames                                   limit         if the share is full
//   kWorking     of pushes on verified connections        capacity      the push waits, FIFO
//   kStalled     of silent pushes while other pushes      capacity / 2  the push keeps its bytes of
//                wait (OpenPushes)                                      kWorking until it ends
//   kUnverified  first frames on unverified connections   capacity / 8  the server refuses the push
//                (VerifiedConnections)
//
// Thread-safe. Invariant: holds at most 1 5/8 times `capacity`, except that a share may hold one
// frame that is larger than the limit of the share.
class PushBudget {
 public:
  enum class Share { kWorking, kStalled, kUnverified };

  explicit PushBudget(int64_t capacity_bytes)
      : shares_{ByteBudget(capacity_bytes), ByteBudget(capacity_bytes / 2),
                ByteBudget(capacity_bytes / 8)} {}

  ByteBudget& share(Share share) { return shares_[static_cast<size_t>(share)]; }
  const ByteBudget& share(Share share) const { return shares_[static_cast<size_t>(share)]; }

  // Returns the bytes held in all shares.
  int64_t held() const {
    int64_t bytes = 0;
    for (const ByteBudget& one : shares_) bytes += one.held();
    return bytes;
  }

 private:
  std::array<ByteBudget, 3> shares_;  // by Share
};

}  // namespace torchps
