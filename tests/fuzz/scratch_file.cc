#include "tests/fuzz/scratch_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {

ScratchFile::ScratchFile() : fd_(memfd_create("scratch", MFD_CLOEXEC)) {
  TPS_CHECK(fd_ >= 0, "cannot create a file in memory");
  path_ = absl::StrCat("/proc/self/fd/", fd_);
}

ScratchFile::~ScratchFile() { close(fd_); }

void ScratchFile::Put(const uint8_t* data, size_t size) {
  TPS_CHECK(ftruncate(fd_, 0) == 0, "cannot truncate the file in memory");
  TPS_CHECK(pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size),
            "cannot write the file in memory");
}

}  // namespace torchps
