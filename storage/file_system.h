#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace torchps {

// How everything that is kept on a disk gets there and back. Tests stand in for it with a disk that
// breaks (tests/testing/faulty_file_system.h).
//
// Every failure is one sentence that names the path, what was tried and the reason, under one of
// these codes:
//   NOT_FOUND            no such file or directory
//   ALREADY_EXISTS       it is there already
//   PERMISSION_DENIED    this user may not
//   FAILED_PRECONDITION  read-only file system, not a regular file, not a directory, not empty,
//                        a lock that another process holds
//   RESOURCE_EXHAUSTED   no space, quota, file too large, too many open files: may pass
//   UNAVAILABLE          an I/O error in writing or syncing (the data still are where they came
//                        from: write them again, elsewhere), and whatever else the system says
//   DATA_LOSS            an I/O error in reading, or a file that ends too soon

// A file that is being written. Not thread-safe. Destroying it closes it without a sync.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // At the end of the file. All of `data` is written, or an error is returned and size() is as
  // before; bytes behind size() mean nothing then, and the next Append overwrites them.
  virtual absl::Status Append(absl::string_view data) = 0;
  // REQUIRES: offset + data.size() <= size(), for what has been appended may be overwritten.
  virtual absl::Status WriteAt(int64_t offset, absl::string_view data) = 0;
  // Cuts the file to `size` bytes. REQUIRES: size <= size().
  virtual absl::Status Truncate(int64_t size) = 0;
  // All that was written survives a power cut when this has returned OK. After a failure everything
  // written since the last OK must be taken as lost, also if a later Sync succeeds: Linux forgets
  // pages that it could not write. Write them again, to a new file.
  virtual absl::Status Sync() = 0;
  // Closes without a sync. The file is of no use afterwards, whatever the result.
  virtual absl::Status Close() = 0;

  virtual int64_t size() const = 0;
};

// A regular file that is being read. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // Fills all of `out`. DATA_LOSS: the file ends before.
  virtual absl::Status ReadAt(int64_t offset, absl::Span<char> out) const = 0;

  // When it was opened.
  virtual int64_t size() const = 0;
};

// Holds a lock file until it is destroyed or the process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// Thread-safe. Paths are as the operating system takes them; parents must exist.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new, empty file, in place of one that is there.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;
  // A file that is there, to go on at its end.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) = 0;

  // Takes the place of what is at `to`. Survives a power cut after SyncDirectory, as do the
  // creation and the removal of a file.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  // FAILED_PRECONDITION: not empty.
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  // With its parents; OK if it is there. They survive a power cut.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  // The names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // Bytes that this user may still write to the file system of `path`; the most that there are
  // where it does not tell.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;
  // Takes the lock file at `path`, which is made if need be and never removed. FAILED_PRECONDITION
  // at once if another process has it, naming its process number; the holder within this process
  // counts as another.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
};

// The operating system's. The process's umask decides who may read new files and directories.
std::unique_ptr<FileSystem> MakePosixFileSystem();

// All of a file. DATA_LOSS also if it has more than `max_bytes`; then nothing was read.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path,
                                          int64_t max_bytes);

// Puts a file of these contents at `path`, entirely or not at all, and so that it survives a power
// cut: PATH.tmp, sync, rename, sync of the directory.
absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 absl::string_view contents);

// What `PATH.tmp` is called; what a crash leaves under such a name is nothing.
std::string TemporaryPath(const std::string& path);

// The directory that `path` is in: "." for a bare name.
std::string ParentDirectory(const std::string& path);

enum class FileAction { kRead, kWrite };

// The status of a failed system call, as listed above: "cannot write DIR/FILE: No space left on
// device". `doing` is "write", "open", "sync", ...
absl::Status FileError(FileAction action, absl::string_view doing, absl::string_view path,
                       int error_number);

}  // namespace torchps
