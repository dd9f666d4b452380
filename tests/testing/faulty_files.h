#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/testing/faulty_disk.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/mutex.h"

// Implementation of FaultyFileSystem: open files and held locks.

namespace torchps::faulty {

using Operation = FaultyFileSystem::Operation;
using Fault = FaultyFileSystem::Fault;
using Disk = FaultyFileSystem::Disk;
using DiskFault = std::optional<Fault>;

inline absl::Status Failed(FileAction action, absl::string_view doing, const std::string& path,
                           const DiskFault& fault) {
  return FileError(action, doing, path, fault->error_number);
}

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(Disk* disk, std::string path, InodePtr inode, uint64_t generation,
                     int64_t size)
      : disk_(disk),
        path_(std::move(path)),
        inode_(std::move(inode)),
        generation_(generation),
        size_(size) {}

  absl::Status Append(absl::string_view data) override {
    if (absl::Status status = Put(size_, data); !status.ok()) return status;
    size_ += static_cast<int64_t>(data.size());
    return absl::OkStatus();
  }

  absl::Status WriteAt(int64_t offset, absl::string_view data) override {
    if (offset < 0 || offset > size_ || static_cast<int64_t>(data.size()) > size_ - offset) {
      return absl::InvalidArgumentError(absl::StrCat("cannot write beyond the end of ", path_));
    }
    return Put(offset, data);
  }

  absl::Status Truncate(int64_t size) override {
    if (size < 0 || size > size_) {
      return absl::InvalidArgumentError(absl::StrCat("cannot make ", path_, " longer"));
    }
    const DiskFault fault = disk_->Begin(Operation::kTruncate, path_);
    if (fault.has_value()) return Failed(FileAction::kWrite, "truncate", path_, fault);
    const MutexLock lock(&disk_->mutex_);
    if (disk_->generation_ != generation_) return Dead("truncate");
    inode_->live.resize(static_cast<size_t>(size));
    inode_->pending.push_back({true, size, "", false});
    size_ = size;
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    const DiskFault fault = disk_->Begin(Operation::kSync, path_);
    const MutexLock lock(&disk_->mutex_);
    if (disk_->generation_ != generation_) return Dead("sync");
    if (fault.has_value()) {
      for (PendingChange& change : inode_->pending) change.forgotten = true;
      return Failed(FileAction::kWrite, "sync", path_, fault);
    }
    std::vector<PendingChange> forgotten;
    for (PendingChange& change : inode_->pending) {
      if (change.forgotten) {
        forgotten.push_back(std::move(change));
      } else if (change.truncates) {
        inode_->durable.resize(static_cast<size_t>(change.offset), '\0');
      } else {
        Write(&inode_->durable, change.offset, change.data);
      }
    }
    inode_->pending = std::move(forgotten);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    const DiskFault fault = disk_->Begin(Operation::kClose, path_);
    if (fault.has_value()) return Failed(FileAction::kWrite, "close", path_, fault);
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }

 private:
  absl::Status Dead(absl::string_view doing) {
    return FileError(FileAction::kWrite, doing, path_, ESHUTDOWN);
  }

  absl::Status Put(int64_t offset, absl::string_view data) {
    DiskFault fault = disk_->Begin(Operation::kWrite, path_);
    const MutexLock lock(&disk_->mutex_);
    if (disk_->generation_ != generation_) return Dead("write");
    if (!fault.has_value()) {
      const int64_t grown =
          offset + static_cast<int64_t>(data.size()) - static_cast<int64_t>(inode_->live.size());
      const int64_t room = std::max<int64_t>(0, disk_->capacity_ - disk_->UsedBytes());
      if (grown > room) {
        const int64_t missing = std::min<int64_t>(grown - room, static_cast<int64_t>(data.size()));
        fault = Fault{ENOSPC, data.size() - static_cast<size_t>(missing)};
      }
    }
    if (fault.has_value()) data = data.substr(0, std::min(fault->bytes_before, data.size()));
    if (!data.empty()) {
      Write(&inode_->live, offset, data);
      inode_->pending.push_back({false, offset, std::string(data), false});
    }
    return fault.has_value() ? Failed(FileAction::kWrite, "write", path_, fault) : absl::OkStatus();
  }

  Disk* const disk_;
  const std::string path_;
  const InodePtr inode_;
  const uint64_t generation_;
  int64_t size_;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(Disk* disk, std::string path, InodePtr inode, int64_t size)
      : disk_(disk), path_(std::move(path)), inode_(std::move(inode)), size_(size) {}

  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    const DiskFault fault = disk_->Begin(Operation::kRead, path_);
    if (fault.has_value()) return Failed(FileAction::kRead, "read", path_, fault);
    const MutexLock lock(&disk_->mutex_);
    const std::string& live = inode_->live;
    if (offset < 0 || offset > static_cast<int64_t>(live.size()) ||
        out.size() > live.size() - static_cast<size_t>(offset)) {
      return absl::DataLossError(absl::StrCat(path_, " ends after ", live.size(),
                                              " bytes; expected at least ",
                                              offset + static_cast<int64_t>(out.size())));
    }
    std::copy_n(live.data() + offset, out.size(), out.data());
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }

 private:
  Disk* const disk_;
  const std::string path_;
  const InodePtr inode_;
  const int64_t size_;
};

class MemoryFileLock final : public FileLock {
 public:
  MemoryFileLock(Disk* disk, std::string path, uint64_t generation)
      : disk_(disk), path_(std::move(path)), generation_(generation) {}

  ~MemoryFileLock() override {
    const MutexLock lock(&disk_->mutex_);
    const auto held = disk_->locks_.find(path_);
    if (held != disk_->locks_.end() && held->second == generation_) disk_->locks_.erase(held);
  }

 private:
  Disk* const disk_;
  const std::string path_;
  const uint64_t generation_;
};

}  // namespace torchps::faulty
