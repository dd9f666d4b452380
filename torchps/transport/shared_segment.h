#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace torchps {

// Memory mapped by two processes of the same user on the same machine. The creator sends an Offer
// over any channel, and the peer opens the segment read-only.
//
// The segment is an anonymous file (memfd) that its creator holds open and that the peer reaches as
// /proc/PID/fd/FD. Because the file is anonymous, names cannot collide and nothing must be
// unlinked; the kernel frees the pages with the last mapping, however the processes end. The size
// is sealed, so that a peer cannot shrink the file under a reader (which would cause SIGBUS). The
// mode is 0600, and Open() checks the mode and the owner. The offer and the segment contain the
// same nonce, because in another container the process id may refer to a different process.
//
// This class does not synchronise access to the bytes; its users do
// (torchps/transport/shared_layout.h). The object itself is immutable and therefore thread-safe.
// Owns the mapping and, in the creator, the file. Other mappings of the same memory remain valid.
class SharedSegment {
 public:
  // Identifies a segment to a peer. Peers send only these numbers, never a path.
  struct Offer {
    int32_t pid = 0;
    int32_t fd = -1;
    uint64_t bytes = 0;
    uint64_t nonce = 0;
  };

  // Size of the header, which this class reserves for itself.
  static constexpr size_t kHeaderBytes = 4096;

  // Creates a segment of `bytes` bytes including the header, zeroed behind the header. All pages
  // are populated at once, so that the first training step does not pay for page faults. `label`
  // appears in /proc/PID/maps. Returns UNAVAILABLE if the kernel refuses the memory.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(const char* label, size_t bytes);

  // Maps a segment offered by another process or by this one. Writing to it crashes the process.
  // Returns FAILED_PRECONDITION, with the reason, if the file does not exist, is not a sealed
  // memfd, or differs from the offer or from `expected_bytes` in owner, mode, size or nonce.
  static absl::StatusOr<std::unique_ptr<const SharedSegment>> Open(const Offer& offer,
                                                                   size_t expected_bytes);

  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // Returns the offer for peers. REQUIRES: this process created the segment.
  Offer offer() const;

  // Return the whole segment, page-aligned.
  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint64_t nonce() const { return nonce_; }

 private:
  SharedSegment(int fd, uint8_t* data, size_t bytes, uint64_t nonce)
      : fd_(fd), data_(data), bytes_(bytes), nonce_(nonce) {}

  const int fd_;  // -1 in a segment that was opened
  uint8_t* const data_;
  const size_t bytes_;
  const uint64_t nonce_;
};

}  // namespace torchps
