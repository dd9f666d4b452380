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

// Interface for disk access. Tests replace it with a faulty disk
// (tests/testing/faulty_file_system.h).
//
// Error messages are one sentence that names the path, the operation and the reason. Codes:
//   NOT_FOUND            no such file or directory
//   ALREADY_EXISTS       the path exists already
//   PERMISSION_DENIED    this user lacks permission
//   FAILED_PRECONDITION  read-only file system, not a regular file, not a directory, not empty,
//                        a lock that another process holds
//   RESOURCE_EXHAUSTED   no space, quota, file too large, too many open files; may be transient
//   UNAVAILABLE          an I/O error while writing or syncing, or any other system error; the
//                        caller still holds the data and can write it elsewhere
//   DATA_LOSS            an I/O error while reading, or a file that ends too early

// A file open for writing. Not thread-safe. The destructor closes the file without a sync.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // Writes `data` at the end of the file. On error, size() is unchanged, the bytes behind size()
  // are unspecified, and the next Append overwrites them.
  virtual absl::Status Append(absl::string_view data) = 0;
  // Overwrites appended data. REQUIRES: offset + data.size() <= size().
  virtual absl::Status WriteAt(int64_t offset, absl::string_view data) = 0;
  // Truncates the file to `size` bytes. REQUIRES: size <= size().
  virtual absl::Status Truncate(int64_t size) = 0;
  // Makes all written data survive a power failure. After an error, the data written since the last
  // successful Sync must be considered lost, even if a later Sync succeeds, because Linux drops
  // pages that it could not write. Write the data again to a new file.
  virtual absl::Status Sync() = 0;
  // Closes the file without a sync. The file is unusable afterwards, even after an error.
  virtual absl::Status Close() = 0;

  virtual int64_t size() const = 0;
};

// A regular file open for reading. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // Fills `out` with the bytes from `offset` on. Returns DATA_LOSS if the file has too few bytes.
  virtual absl::Status ReadAt(int64_t offset, absl::Span<char> out) const = 0;

  // Returns the size at the time of opening.
  virtual int64_t size() const = 0;
};

// Holds a lock file until this object is destroyed or the process ends in any way.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// Operations on files and directories. Thread-safe. Paths have the form that the operating system
// expects. Parent directories must exist.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates an empty file, replacing an existing file.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;
  // Opens an existing file for appending.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) = 0;

  // Renames a file, replacing an existing file at `to`. Renaming, creating or removing a file
  // survives a power failure only after SyncDirectory.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  // Returns FAILED_PRECONDITION if the directory is not empty.
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  // Creates a directory and its missing parents, durably. Returns OK if the directory exists.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  // Returns the names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // Returns the number of bytes that this user can still write to the file system of `path`, or the
  // maximum value if the file system does not report it.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;
  // Acquires the lock file at `path`, creating it if necessary; never removes it. Does not block.
  // Returns FAILED_PRECONDITION, naming the holder's process id, if the lock is already held, even
  // by this process.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
};

// Returns the operating system's file system. The umask determines the permissions of new files and
// directories.
std::unique_ptr<FileSystem> MakePosixFileSystem();

// Reads a whole file. Returns DATA_LOSS, without reading, if the file is larger than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path,
                                          int64_t max_bytes);

// Writes `contents` to `path` atomically and durably: writes PATH.tmp, syncs, renames it, and syncs
// the directory.
absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 absl::string_view contents);

// Returns PATH.tmp. Files with such a name are leftovers of a crash and may be ignored.
std::string TemporaryPath(const std::string& path);

// Returns the parent directory of `path`, or "." for a bare name.
std::string ParentDirectory(const std::string& path);

enum class FileAction { kRead, kWrite };

// Returns the status for a failed system call, with a code from the list above. Example: "cannot
// write DIR/FILE: No space left on device". `doing` is "write", "open", "sync", ...
absl::Status FileError(FileAction action, absl::string_view doing, absl::string_view path,
                       int error_number);

}  // namespace torchps
