#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "torchps/common/mutex.h"
#include "torchps/common/process/file_descriptor.h"
#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

// The kernel transfers slightly less than 2 GiB per call.
constexpr size_t kLargestCall = size_t{1} << 30;
// Append() asks the kernel to write to disk each time that this many bytes were added.
constexpr int64_t kHandedOverBytes = 16 << 20;
// The kernel removes the permissions in the umask from these modes.
constexpr mode_t kFileMode = 0666;
constexpr mode_t kDirectoryMode = 0777;

FileDescriptor Open(const std::string& path, int flags) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, kFileMode);
  } while (fd < 0 && errno == EINTR);
  return FileDescriptor(fd);
}

// Returns the size of a regular file. Rejects pipes and devices, because reading them could block
// forever.
absl::StatusOr<int64_t> RegularSize(const FileDescriptor& fd, const std::string& path) {
  struct stat file;
  if (fstat(fd.get(), &file) != 0) return FileError(FileAction::kRead, "examine", path, errno);
  if (!S_ISREG(file.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  return static_cast<int64_t>(file.st_size);
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, FileDescriptor fd, int64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  absl::Status Append(absl::string_view data) override {
    if (absl::Status status = Write(size_, data); !status.ok()) return status;
    size_ += static_cast<int64_t>(data.size());
    // Starts writing to disk early, so that a later Sync() of a large file is short and does not
    // delay the syncs of other files. Sync() reports errors of these writes.
    if (size_ - handed_over_ >= kHandedOverBytes) {
      sync_file_range(fd_.get(), handed_over_, size_ - handed_over_, SYNC_FILE_RANGE_WRITE);
      handed_over_ = size_;
    }
    return absl::OkStatus();
  }

  absl::Status WriteAt(int64_t offset, absl::string_view data) override {
    if (offset < 0 || offset > size_ || static_cast<int64_t>(data.size()) > size_ - offset) {
      return absl::InvalidArgumentError(absl::StrCat("cannot write ", data.size(), " bytes at ",
                                                     offset, " of ", path_, ", which has ", size_));
    }
    return Write(offset, data);
  }

  absl::Status Truncate(int64_t size) override {
    if (size < 0 || size > size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot truncate ", path_, " from ", size_, " to ", size, " bytes"));
    }
    int result;
    do {
      result = ftruncate(fd_.get(), size);
    } while (result != 0 && errno == EINTR);
    if (result != 0) return FileError(FileAction::kWrite, "truncate", path_, errno);
    size_ = size;
    handed_over_ = std::min(handed_over_, size);
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    int result;
    do {
      result = fdatasync(fd_.get());
    } while (result != 0 && errno == EINTR);
    return result == 0 ? absl::OkStatus() : FileError(FileAction::kWrite, "sync", path_, errno);
  }

  absl::Status Close() override {
    const int fd = fd_.Release();
    if (fd < 0) return absl::OkStatus();
    // On Linux, close() releases the descriptor even if it returns EINTR.
    if (close(fd) != 0 && errno != EINTR) {
      return FileError(FileAction::kWrite, "close", path_, errno);
    }
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }

 private:
  absl::Status Write(int64_t offset, absl::string_view data) {
    while (!data.empty()) {
      const ssize_t written =
          pwrite(fd_.get(), data.data(), std::min(data.size(), kLargestCall), offset);
      if (written < 0) {
        if (errno == EINTR) continue;
        return FileError(FileAction::kWrite, "write", path_, errno);
      }
      data.remove_prefix(static_cast<size_t>(written));
      offset += written;
    }
    return absl::OkStatus();
  }

  const std::string path_;
  FileDescriptor fd_;
  int64_t size_;
  int64_t handed_over_ = size_;  // the kernel was asked to write the bytes before this offset
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, FileDescriptor fd, int64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    const int64_t end = offset + static_cast<int64_t>(out.size());
    while (!out.empty()) {
      const ssize_t got = pread(fd_.get(), out.data(), std::min(out.size(), kLargestCall), offset);
      if (got < 0) {
        if (errno == EINTR) continue;
        return FileError(FileAction::kRead, "read", path_, errno);
      }
      if (got == 0) {
        return absl::DataLossError(
            absl::StrCat(path_, " ends after ", offset, " bytes; expected at least ", end));
      }
      out.remove_prefix(static_cast<size_t>(got));
      offset += got;
    }
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }

 private:
  const std::string path_;
  const FileDescriptor fd_;
  const int64_t size_;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(FileDescriptor fd) : fd_(std::move(fd)) {}

 private:
  const FileDescriptor fd_;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override {
    return OpenToWrite(path, O_CREAT | O_TRUNC, "create");
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return OpenToWrite(path, 0, "open");
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override {
    FileDescriptor fd = Open(path, O_RDONLY | O_NONBLOCK);
    if (fd.get() < 0) return FileError(FileAction::kRead, "open", path, errno);
    const absl::StatusOr<int64_t> size = RegularSize(fd, path);
    if (!size.ok()) return size.status();
    return std::make_unique<PosixReadableFile>(path, std::move(fd), *size);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    return FileError(FileAction::kWrite, absl::StrCat("rename ", from, " to"), to, errno);
  }

  absl::Status RemoveFile(const std::string& path) override {
    if (unlink(path.c_str()) == 0) return absl::OkStatus();
    return FileError(FileAction::kWrite, "remove", path, errno);
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    if (rmdir(path.c_str()) == 0) return absl::OkStatus();
    return FileError(FileAction::kWrite, "remove", path, errno);
  }

  absl::Status CreateDirectories(const std::string& path) override {
    // The lock is held throughout, so that a thread that finds a directory created by another
    // thread waits for that directory to be synced.
    MutexLock lock(&making_);
    // Creates the outermost directory first, so that each name is durable in its parent.
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string directory = path.substr(0, end);
      if (mkdir(directory.c_str(), kDirectoryMode) == 0) {
        unsynced_.insert(directory);
      } else if (errno != EEXIST) {
        return FileError(FileAction::kWrite, "create directory", directory, errno);
      }
      // An earlier call may have created the directory and then failed to sync it.
      if (unsynced_.count(directory) > 0) {
        if (absl::Status status = SyncDirectory(ParentDirectory(directory)); !status.ok()) {
          return status;
        }
        unsynced_.erase(directory);
      }
      if (end == std::string::npos) break;
    }
    struct stat file;
    if (stat(path.c_str(), &file) == 0 && !S_ISDIR(file.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(path, " is a file; expected a directory"));
    }
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const FileDescriptor fd = Open(path, O_RDONLY | O_DIRECTORY);
    if (fd.get() < 0) return FileError(FileAction::kWrite, "open", path, errno);
    int result;
    do {
      result = fsync(fd.get());
    } while (result != 0 && errno == EINTR);
    return result == 0 ? absl::OkStatus() : FileError(FileAction::kWrite, "sync", path, errno);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    DIR* const directory = opendir(path.c_str());
    if (directory == nullptr) return FileError(FileAction::kRead, "open", path, errno);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* const entry = readdir(directory);
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int error = errno;
    closedir(directory);
    if (error != 0) return FileError(FileAction::kRead, "list", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs system;
    if (statvfs(path.c_str(), &system) != 0) {
      return FileError(FileAction::kRead, "examine", path, errno);
    }
    // Some user-space file systems do not report a size.
    if (system.f_blocks == 0) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(system.f_bavail) * static_cast<int64_t>(system.f_frsize);
  }

  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    FileDescriptor fd = Open(path, O_RDWR | O_CREAT | O_NONBLOCK);
    if (fd.get() < 0) return FileError(FileAction::kWrite, "open", path, errno);
    if (absl::StatusOr<int64_t> size = RegularSize(fd, path); !size.ok()) return size.status();
    int result;
    do {
      result = flock(fd.get(), LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno == EWOULDBLOCK) {
      char text[32];
      const ssize_t got = pread(fd.get(), text, sizeof(text), 0);
      absl::string_view holder(text, got > 0 ? static_cast<size_t>(got) : 0);
      absl::ConsumeSuffix(&holder, "\n");
      int64_t pid;
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is held by another process",
                       absl::SimpleAtoi(holder, &pid) ? absl::StrCat(", number ", pid) : "",
                       "; stop that one, or use another directory"));
    }
    if (result != 0) return FileError(FileAction::kWrite, "lock", path, errno);
    // The process id is only for messages, so ignore errors such as a full disk.
    const std::string text = absl::StrCat(getpid(), "\n");
    if (ftruncate(fd.get(), 0) == 0 && pwrite(fd.get(), text.data(), text.size(), 0) < 0) {
    }
    return std::make_unique<PosixFileLock>(std::move(fd));
  }

 private:
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenToWrite(const std::string& path, int flags,
                                                            absl::string_view doing) {
    FileDescriptor fd = Open(path, O_RDWR | O_NONBLOCK | flags);
    if (fd.get() < 0) return FileError(FileAction::kWrite, doing, path, errno);
    const absl::StatusOr<int64_t> size = RegularSize(fd, path);
    if (!size.ok()) return size.status();
    return std::make_unique<PosixWritableFile>(path, std::move(fd), *size);
  }

  Mutex making_;
  // Directories created here that may not be durable yet.
  std::set<std::string> unsynced_ ABSL_GUARDED_BY(making_);
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem() { return std::make_unique<PosixFileSystem>(); }

}  // namespace torchps
