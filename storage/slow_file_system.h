#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "storage/file_system.h"

namespace torchps {

// A disk that is slower than the one that there is, to see a job beside a bad one: reading, writing
// and syncing take a time of their own on top.
struct SlowDisk {
  double bytes_per_second = 0;  // read and written; 0: as fast as it is
  absl::Duration sync = absl::ZeroDuration();
  bool reads_only = false;  // writing is as fast as it is: only to come back is slow
};

// "20", "20:100ms" or "20:reads": MB a second, and what a sync takes, or that only reading is slow.
// INVALID_ARGUMENT says what is expected.
absl::StatusOr<SlowDisk> ParseSlowDisk(absl::string_view text);

// Passes all on to `files`, which it borrows, and waits before it answers: `pause` (null:
// absl::SleepFor) on the caller's thread. Thread-safe as `files` and `pause` are; callers do not
// wait for each other.
std::unique_ptr<FileSystem> MakeSlowFileSystem(FileSystem* files, SlowDisk disk,
                                               std::function<void(absl::Duration)> pause = nullptr);

}  // namespace torchps
