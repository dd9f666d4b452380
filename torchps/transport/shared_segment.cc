#include "torchps/transport/shared_segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/common/check.h"
#include "torchps/common/process/file_descriptor.h"

namespace torchps {
namespace {

// The start of each segment.
struct Header {
  uint64_t magic;
  uint64_t nonce;
};
constexpr uint64_t kMagic = 0x326d687373707274;  // "trpsshm2"
static_assert(sizeof(Header) <= SharedSegment::kHeaderBytes);

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr mode_t kMode = 0600;

absl::Status NoMemory(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("cannot create shared memory: ", what, ": ", std::strerror(errno)));
}

absl::Status NotAsOffered(const SharedSegment::Offer& offer, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat("the shared memory offered as file ", offer.fd,
                                                    " of process ", offer.pid, " ", what));
}

// Checks the file without opening it, because opening an unknown pipe or device could block or have
// side effects.
absl::Status CheckFile(const SharedSegment::Offer& offer, const FileDescriptor& path,
                       size_t expected_bytes) {
  struct stat file;
  struct statfs system;
  if (fstat(path.get(), &file) != 0 || fstatfs(path.get(), &system) != 0) {
    return NotAsOffered(offer, absl::StrCat("cannot be examined: ", std::strerror(errno)));
  }
  // Accepts only tmpfs, not hugetlbfs. Touching a hugetlbfs page that cannot be allocated raises
  // SIGBUS.
  if (!S_ISREG(file.st_mode) || system.f_type != TMPFS_MAGIC) {
    return NotAsOffered(offer, "is not memory");
  }
  if (file.st_uid != geteuid()) {
    return NotAsOffered(offer, absl::StrCat("belongs to user ", file.st_uid,
                                            "; expected this process's user ", geteuid()));
  }
  if ((file.st_mode & 07777) != kMode) {
    return NotAsOffered(offer, absl::StrFormat("has mode %o; expected %o", file.st_mode & 07777,
                                               static_cast<unsigned>(kMode)));
  }
  if (static_cast<uint64_t>(file.st_size) != expected_bytes) {
    return NotAsOffered(offer,
                        absl::StrCat("has ", file.st_size, " bytes; expected ", expected_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(const char* label,
                                                                     size_t bytes) {
  TPS_CHECK(bytes >= kHeaderBytes, "a segment has room for its header");
  FileDescriptor fd(memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return NoMemory("memfd_create");
  if (fchmod(fd.get(), kMode) != 0) return NoMemory("fchmod");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return NoMemory("ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory("F_ADD_SEALS");
  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) return NoMemory("getrandom");
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) return NoMemory("mmap");
  *static_cast<Header*>(memory) = {kMagic, nonce};
  return absl::WrapUnique(
      new SharedSegment(fd.Release(), static_cast<uint8_t*>(memory), bytes, nonce));
}

absl::StatusOr<std::unique_ptr<const SharedSegment>> SharedSegment::Open(const Offer& offer,
                                                                         size_t expected_bytes) {
  if (offer.pid <= 0 || offer.fd < 0 || offer.bytes != expected_bytes ||
      expected_bytes < kHeaderBytes) {
    return NotAsOffered(offer, absl::StrCat("has an offered size of ", offer.bytes,
                                            " bytes; expected ", expected_bytes));
  }
  const std::string name = absl::StrCat("/proc/", offer.pid, "/fd/", offer.fd);
  const FileDescriptor path(open(name.c_str(), O_PATH | O_CLOEXEC));
  if (path.get() < 0) {
    return NotAsOffered(offer, absl::StrCat("cannot be reached: ", std::strerror(errno)));
  }
  if (absl::Status status = CheckFile(offer, path, expected_bytes); !status.ok()) return status;
  const std::string same_file = absl::StrCat("/proc/self/fd/", path.get());
  const FileDescriptor fd(open(same_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) {
    return NotAsOffered(offer, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return NotAsOffered(offer, "is not sealed, so it could shrink while it is read");
  }
  // Check the first page before mapping the rest.
  Header header = {};
  if (pread(fd.get(), &header, sizeof(header), 0) != sizeof(header) || header.magic != kMagic ||
      header.nonce != offer.nonce) {
    return NotAsOffered(offer, "is not the offered segment");
  }
  void* const memory =
      mmap(nullptr, expected_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return NotAsOffered(offer, absl::StrCat("cannot be mapped: ", std::strerror(errno)));
  }
  return absl::WrapUnique<const SharedSegment>(
      new SharedSegment(-1, static_cast<uint8_t*>(memory), expected_bytes, header.nonce));
}

SharedSegment::~SharedSegment() {
  munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

SharedSegment::Offer SharedSegment::offer() const {
  TPS_CHECK(fd_ >= 0, "only its maker offers a segment");
  return {getpid(), fd_, bytes_, nonce_};
}

}  // namespace torchps
