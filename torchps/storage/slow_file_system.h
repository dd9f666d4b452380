#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Parameters of a simulated slow disk, to observe how a job behaves with a slow disk. Reading,
// writing and syncing take additional time.
struct SlowDisk {
  double bytes_per_second = 0;  // for reading and writing; 0 adds no delay
  absl::Duration sync = absl::ZeroDuration();
  bool reads_only = false;  // does not delay writes, so that only recovery is slow
};

// Parses "20", "20:100ms" or "20:reads": MB per second, optionally followed by the duration of a
// sync or by "reads" to slow down only reads. Returns INVALID_ARGUMENT with the expected format.
absl::StatusOr<SlowDisk> ParseSlowDisk(absl::string_view text);

// Returns a file system that forwards all calls to `files`, which must outlive it. Reads, writes
// and syncs wait first, by calling `pause` on the caller's thread (null: absl::SleepFor).
// Thread-safe if `files` and `pause` are; concurrent callers do not wait for each other.
std::unique_ptr<FileSystem> MakeSlowFileSystem(FileSystem* files, SlowDisk disk,
                                               std::function<void(absl::Duration)> pause = nullptr);

}  // namespace torchps
