// shared_memory_copy: a message copied from one process into another through memory that both have
// mapped: a ring of a few pieces, in and out at the same time. What a transport through shared
// memory costs if it copies; the product's does not.

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/data_plane/numbers.h"
#include "bench/data_plane/operation.h"
#include "bench/data_plane/shared_copy.h"

namespace torchps {
namespace {

// 4 MiB in all: small enough for a cache, long enough that neither side waits for the other often.
constexpr size_t kPieceBytes = 512 << 10;
constexpr uint32_t kPieces = 8;

// A number that one process raises and the other waits for. Lives in shared memory, which begins
// as zeros.
class Count {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  void Raise() {
    value_.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &value_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }

  // Until it is no longer `seen`.
  void AwaitChange(uint32_t seen) const {
    while (value() == seen) {
      syscall(SYS_futex, &value_, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    }
  }

 private:
  std::atomic<uint32_t> value_;
};

struct Ring {
  alignas(64) Count written;  // pieces, by the sender
  alignas(64) Count read;     // pieces, by the receiver
  alignas(4096) char pieces[kPieces][kPieceBytes];
};

absl::StatusOr<Ring*> Map(int fd) {
  void* const memory = mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot map: ", std::strerror(errno)));
  }
  return static_cast<Ring*>(memory);
}

class CopyIn final : public Operation {
 public:
  CopyIn(Ring* ring, const std::vector<float>* message) : ring_(ring), message_(message) {}

  absl::Status Run() override {
    const char* from = reinterpret_cast<const char*>(message_->data());
    uint32_t written = ring_->written.value();
    for (size_t left = message_->size() * sizeof(float); left > 0;) {
      for (uint32_t read = ring_->read.value(); written - read == kPieces;
           read = ring_->read.value()) {
        ring_->read.AwaitChange(read);
      }
      const size_t bytes = std::min(left, kPieceBytes);
      std::memcpy(ring_->pieces[written % kPieces], from, bytes);
      ring_->written.Raise();
      ++written;
      from += bytes;
      left -= bytes;
    }
    for (uint32_t read = ring_->read.value(); read != written; read = ring_->read.value()) {
      ring_->read.AwaitChange(read);
    }
    return absl::OkStatus();
  }

 private:
  Ring* const ring_;
  const std::vector<float>* const message_;
};

class SharedCopyStage final : public Stage {
 public:
  SharedCopyStage(const Scenario& scenario, Ring* ring)
      : ring_(ring), message_(SomeFloats(scenario.bytes / sizeof(float))) {}
  ~SharedCopyStage() override { munmap(ring_, sizeof(Ring)); }

  absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view) override {
    return std::make_unique<CopyIn>(ring_, &message_);
  }

 private:
  Ring* const ring_;
  const std::vector<float> message_;
};

void CopyOut(Ring* ring, size_t message_bytes) {
  std::vector<float> destination = SomeFloats(message_bytes / sizeof(float));
  size_t at = 0;
  for (uint32_t read = 0;; ++read) {
    ring->written.AwaitChange(read);
    const size_t bytes = std::min(message_bytes - at, kPieceBytes);
    std::memcpy(reinterpret_cast<char*>(destination.data()) + at, ring->pieces[read % kPieces],
                bytes);
    at = (at + bytes) % message_bytes;
    ring->read.Raise();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeSharedCopyStage(const Scenario& scenario,
                                                           const Peers& peers) {
  const int fd = open(peers.addresses.front().c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", peers.addresses.front(), ": ", std::strerror(errno)));
  }
  const absl::StatusOr<Ring*> ring = Map(fd);
  close(fd);
  if (!ring.ok()) return ring.status();
  return std::make_unique<SharedCopyStage>(scenario, *ring);
}

absl::Status ServeSharedCopy(const Scenario& scenario) {
  const int fd = memfd_create("bench", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof(Ring)) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory to share: ", std::strerror(errno)));
  }
  const absl::StatusOr<Ring*> ring = Map(fd);
  if (!ring.ok()) return ring.status();
  // It ends with the process.
  std::thread(CopyOut, *ring, scenario.bytes).detach();
  std::printf("peer ready address=/proc/%d/fd/%d\n", getpid(), fd);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  _exit(0);
}

}  // namespace torchps
