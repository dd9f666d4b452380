#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace torchps {

// Memory that two processes of one user on one machine have both mapped: one makes it, tells the
// other an Offer over any channel, and the other opens it read-only.
//
// It is an anonymous file (memfd) that its maker holds open and that a peer reaches as
// /proc/PID/fd/FD. There is no name, so none can be taken, nothing has to be unlinked, and nothing
// is left behind however either process ends: the kernel frees the pages with the last mapping. Its
// size is sealed, so no peer can take pages away under a reader (which would be SIGBUS); its mode
// is 0600, and the process that opens it insists on that and on its own user as the owner. A nonce
// inside, told in the offer, tells this segment from whatever a process number means in another
// container.
//
// The bytes are not synchronised; their users are (shm/shared_layout.h says what lies in them).
// The object itself is immutable, so thread-safe. Owns its mapping, and where it was created the
// file; other mappings of the same memory live on.
class SharedSegment {
 public:
  // Where a peer finds a segment. These numbers are all that ever comes from a peer: never a path.
  struct Offer {
    int32_t pid = 0;
    int32_t fd = -1;
    uint64_t bytes = 0;
    uint64_t nonce = 0;
  };

  // The first bytes of every segment belong to this class.
  static constexpr size_t kHeaderBytes = 4096;

  // A segment of `bytes`, kHeaderBytes among them; zeros behind these, all of it in memory already
  // (the first touch of a page would otherwise be paid for in the first step). `label` is what
  // /proc/PID/maps calls it. UNAVAILABLE: the kernel gives no such memory.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(const char* label, size_t bytes);

  // The segment that another process, or this one, offers; writing to it is a fault of ours and
  // ends the process. FAILED_PRECONDITION says in one sentence why it is not what it should be: not
  // there, not a sealed memfd, another owner, mode or size than `expected_bytes`, another nonce.
  static absl::StatusOr<std::unique_ptr<const SharedSegment>> Open(const Offer& offer,
                                                                   size_t expected_bytes);

  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  // How a peer finds it. REQUIRES: created here, not opened.
  Offer offer() const;

  // The whole segment; page-aligned.
  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  uint64_t nonce() const { return nonce_; }

 private:
  SharedSegment(int fd, uint8_t* data, size_t bytes, uint64_t nonce)
      : fd_(fd), data_(data), bytes_(bytes), nonce_(nonce) {}

  const int fd_;  // -1 where it was opened
  uint8_t* const data_;
  const size_t bytes_;
  const uint64_t nonce_;
};

}  // namespace torchps
