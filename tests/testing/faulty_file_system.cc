#include "tests/testing/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/testing/faulty_disk.h"
#include "tests/testing/faulty_files.h"
#include "torchps/common/check.h"
#include "torchps/common/hash.h"
#include "torchps/common/mutex.h"

namespace torchps {
namespace {

constexpr int64_t kSectorBytes = 512;

}  // namespace

using faulty::Clean;
using faulty::DiskFault;
using faulty::Failed;
using faulty::Inode;
using faulty::InodePtr;
using faulty::MemoryFileLock;
using faulty::MemoryReadableFile;
using faulty::MemoryWritableFile;
using faulty::Operation;
using faulty::PendingChange;
using faulty::PendingName;
using faulty::Write;

FaultyFileSystem::FaultyFileSystem() : disk_(std::make_unique<Disk>()) {}

FaultyFileSystem::~FaultyFileSystem() = default;

void FaultyFileSystem::SetFaultHook(FaultHook hook) {
  const MutexLock lock(&disk_->mutex_);
  disk_->hook_ = std::move(hook);
}

void FaultyFileSystem::FailNth(int64_t n, Fault fault) {
  const MutexLock lock(&disk_->mutex_);
  disk_->fail_at_ = disk_->operations_ + n;
  disk_->fault_ = fault;
}

void FaultyFileSystem::PowerOffAt(int64_t n) {
  const MutexLock lock(&disk_->mutex_);
  disk_->off_at_ = disk_->operations_ + n;
}

void FaultyFileSystem::SetCapacity(int64_t bytes) {
  const MutexLock lock(&disk_->mutex_);
  disk_->capacity_ = bytes;
}

void FaultyFileSystem::LeaveFree(int64_t bytes) {
  const MutexLock lock(&disk_->mutex_);
  disk_->capacity_ = disk_->UsedBytes() + bytes;
}

void FaultyFileSystem::Crash(uint64_t seed) {
  const MutexLock lock(&disk_->mutex_);
  const auto chance = [&seed](uint64_t bound) { return UniformBelow(seed, bound); };
  // A quarter of the crashes keeps all unsynced changes, and another quarter loses them all.
  const uint64_t mood = chance(4);
  const auto survives = [&] { return mood == 0 ? true : mood == 1 ? false : chance(2) == 0; };

  for (auto& [directory, pending] : disk_->pending_names_) {
    for (const PendingName& name : pending) {
      if (!survives()) break;
      disk_->BindDurably(name);
    }
  }
  disk_->pending_names_.clear();
  disk_->names_ = disk_->durable_names_;

  // Visits the files in the order of their names, so that a seed always tears the same files.
  for (auto& [path, inode] : disk_->names_) {
    for (const PendingChange& change : inode->pending) {
      if (change.forgotten || !survives()) continue;
      if (change.truncates) {
        inode->durable.resize(static_cast<size_t>(change.offset), '\0');
        continue;
      }
      absl::string_view data = change.data;
      if (mood != 0 && chance(4) == 0) {
        // A disk writes the sectors of one write in any order.
        for (int64_t at = change.offset; !data.empty();) {
          const auto size = static_cast<size_t>(kSectorBytes - at % kSectorBytes);
          if (chance(2) == 0) Write(&inode->durable, at, data.substr(0, size));
          data.remove_prefix(std::min(size, data.size()));
          at += static_cast<int64_t>(size);
        }
        continue;
      }
      if (mood != 0 && chance(2) == 0) data = data.substr(0, chance(data.size() + 1));
      Write(&inode->durable, change.offset, data);
    }
    inode->pending.clear();
    inode->live = inode->durable;
  }
  ++disk_->generation_;
  disk_->locks_.clear();
  disk_->off_at_ = std::numeric_limits<int64_t>::max();
}

void FaultyFileSystem::LoseDisk() {
  const MutexLock lock(&disk_->mutex_);
  disk_->names_.clear();
  disk_->durable_names_.clear();
  disk_->pending_names_.clear();
  disk_->directories_ = {"/", "."};
  ++disk_->generation_;
  disk_->locks_.clear();
  disk_->off_at_ = std::numeric_limits<int64_t>::max();
}

void FaultyFileSystem::KillProcesses() {
  const MutexLock lock(&disk_->mutex_);
  ++disk_->generation_;
  disk_->locks_.clear();
}

int64_t FaultyFileSystem::operations() const {
  const MutexLock lock(&disk_->mutex_);
  return disk_->operations_;
}

void FaultyFileSystem::FlipBit(const std::string& path, int64_t byte, int bit) {
  const MutexLock lock(&disk_->mutex_);
  const auto found = disk_->names_.find(path);
  TPS_CHECK(found != disk_->names_.end(), "the file is there");
  Inode& inode = *found->second;
  TPS_CHECK(byte >= 0 && byte < static_cast<int64_t>(inode.live.size()), "the byte is there");
  const char mask = static_cast<char>(1 << bit);
  inode.live[static_cast<size_t>(byte)] ^= mask;
  if (byte < static_cast<int64_t>(inode.durable.size())) {
    inode.durable[static_cast<size_t>(byte)] ^= mask;
  }
}

std::string FaultyFileSystem::MisdirectWrite(uint64_t seed, MayDamage may_damage) {
  const MutexLock lock(&disk_->mutex_);
  std::vector<std::pair<std::string, Inode*>> targets;
  std::string contents;  // of all files: the source of the wrong bytes
  for (const auto& [path, inode] : disk_->names_) {
    contents += inode->live;
    const size_t bytes = inode->live.size();
    if (bytes > 0 && may_damage(path, bytes)) targets.emplace_back(path, inode.get());
  }
  if (targets.empty()) return "";
  const auto& [path, inode] = targets[UniformBelow(seed, targets.size())];
  const size_t sectors = (inode->live.size() + kSectorBytes - 1) / kSectorBytes;
  const size_t begin = UniformBelow(seed, sectors) * kSectorBytes;
  const size_t size = std::min<size_t>(kSectorBytes, inode->live.size() - begin);
  const size_t from = UniformBelow(seed, contents.size() - size + 1);
  inode->live.replace(begin, size, contents, from, size);
  inode->durable = inode->live;
  inode->pending.clear();
  return path;
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::CreateFile(
    const std::string& path) {
  const DiskFault fault = disk_->Begin(Operation::kCreate, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "create", path, fault);
  const MutexLock lock(&disk_->mutex_);
  if (absl::Status status = disk_->CheckParent("create", path); !status.ok()) return status;
  if (disk_->directories_.count(path) > 0) {
    return FileError(FileAction::kWrite, "create", path, EISDIR);
  }
  const auto found = disk_->names_.find(path);
  InodePtr inode;
  if (found != disk_->names_.end()) {
    inode = found->second;
    inode->live.clear();
    inode->pending.push_back({true, 0, "", false});
  } else {
    inode = std::make_shared<Inode>();
    disk_->Bind(path, inode);
  }
  return std::make_unique<MemoryWritableFile>(disk_.get(), path, std::move(inode),
                                              disk_->generation_, 0);
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::OpenForAppend(
    const std::string& path) {
  const DiskFault fault = disk_->Begin(Operation::kOpenForAppend, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "open", path, fault);
  const MutexLock lock(&disk_->mutex_);
  const auto found = disk_->names_.find(path);
  if (found == disk_->names_.end()) return FileError(FileAction::kWrite, "open", path, ENOENT);
  return std::make_unique<MemoryWritableFile>(disk_.get(), path, found->second, disk_->generation_,
                                              static_cast<int64_t>(found->second->live.size()));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultyFileSystem::OpenForReading(
    const std::string& path) {
  const DiskFault fault = disk_->Begin(Operation::kOpenForReading, path);
  if (fault.has_value()) return Failed(FileAction::kRead, "open", path, fault);
  const MutexLock lock(&disk_->mutex_);
  const auto found = disk_->names_.find(path);
  if (found == disk_->names_.end()) return FileError(FileAction::kRead, "open", path, ENOENT);
  return std::make_unique<MemoryReadableFile>(disk_.get(), path, found->second,
                                              static_cast<int64_t>(found->second->live.size()));
}

absl::Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  const DiskFault fault = disk_->Begin(Operation::kRename, to);
  const std::string doing = absl::StrCat("rename ", from, " to");
  if (fault.has_value()) return Failed(FileAction::kWrite, doing, to, fault);
  const MutexLock lock(&disk_->mutex_);
  const auto found = disk_->names_.find(from);
  if (found == disk_->names_.end()) return FileError(FileAction::kWrite, doing, to, ENOENT);
  if (absl::Status status = disk_->CheckParent(doing, to); !status.ok()) return status;
  if (disk_->directories_.count(to) > 0) return FileError(FileAction::kWrite, doing, to, EISDIR);
  const InodePtr inode = found->second;
  if (from == to) return absl::OkStatus();
  if (ParentDirectory(from) == ParentDirectory(to)) {
    disk_->Bind(to, inode, from);
  } else {
    disk_->Bind(to, inode);
    disk_->Bind(from, nullptr);
  }
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::RemoveFile(const std::string& path) {
  const DiskFault fault = disk_->Begin(Operation::kRemove, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "remove", path, fault);
  const MutexLock lock(&disk_->mutex_);
  if (disk_->names_.count(path) == 0) return FileError(FileAction::kWrite, "remove", path, ENOENT);
  disk_->Bind(path, nullptr);
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::RemoveDirectory(const std::string& unclean) {
  const std::string path = Clean(unclean);
  const DiskFault fault = disk_->Begin(Operation::kRemove, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "remove", path, fault);
  const MutexLock lock(&disk_->mutex_);
  if (disk_->directories_.count(path) == 0) {
    return FileError(FileAction::kWrite, "remove", path, ENOENT);
  }
  const auto inside = [&](const std::string& name) { return ParentDirectory(name) == path; };
  for (const auto& [name, inode] : disk_->names_) {
    if (inside(name)) return FileError(FileAction::kWrite, "remove", path, ENOTEMPTY);
  }
  for (const std::string& name : disk_->directories_) {
    if (name != path && inside(name)) {
      return FileError(FileAction::kWrite, "remove", path, ENOTEMPTY);
    }
  }
  // Unsynced removals of files in this directory become durable with it. Otherwise a crash could
  // leave files without a directory.
  for (const PendingName& name : disk_->pending_names_[path]) disk_->BindDurably(name);
  disk_->pending_names_.erase(path);
  disk_->directories_.erase(path);
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::CreateDirectories(const std::string& unclean) {
  const std::string path = Clean(unclean);
  const DiskFault fault = disk_->Begin(Operation::kCreateDirectories, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "create directory", path, fault);
  const MutexLock lock(&disk_->mutex_);
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string directory = path.substr(0, end);
    if (disk_->names_.count(directory) > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(directory, " is a file; expected a directory"));
    }
    disk_->directories_.insert(directory);
    if (end == std::string::npos) return absl::OkStatus();
  }
}

absl::Status FaultyFileSystem::SyncDirectory(const std::string& unclean) {
  const std::string path = Clean(unclean);
  const DiskFault fault = disk_->Begin(Operation::kSyncDirectory, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "sync", path, fault);
  const MutexLock lock(&disk_->mutex_);
  if (disk_->directories_.count(path) == 0) {
    return FileError(FileAction::kWrite, "open", path, ENOENT);
  }
  for (const PendingName& name : disk_->pending_names_[path]) disk_->BindDurably(name);
  disk_->pending_names_.erase(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::List(const std::string& unclean) {
  const std::string path = Clean(unclean);
  const DiskFault fault = disk_->Begin(Operation::kList, path);
  if (fault.has_value()) return Failed(FileAction::kRead, "list", path, fault);
  const MutexLock lock(&disk_->mutex_);
  if (disk_->directories_.count(path) == 0) {
    return FileError(FileAction::kRead, "open", path, ENOENT);
  }
  std::set<std::string> names;
  const auto add = [&](const std::string& name) {
    if (name == path || ParentDirectory(name) != path) return;
    names.insert(name.substr(name.rfind('/') + 1));
  };
  for (const auto& [name, inode] : disk_->names_) add(name);
  for (const std::string& name : disk_->directories_) {
    if (name != "." && name != "/") add(name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

absl::StatusOr<int64_t> FaultyFileSystem::FreeBytes(const std::string& /*path*/) {
  const MutexLock lock(&disk_->mutex_);
  return std::max<int64_t>(0, disk_->capacity_ - disk_->UsedBytes());
}

absl::StatusOr<std::unique_ptr<FileLock>> FaultyFileSystem::Lock(const std::string& path) {
  const DiskFault fault = disk_->Begin(Operation::kLock, path);
  if (fault.has_value()) return Failed(FileAction::kWrite, "lock", path, fault);
  const MutexLock lock(&disk_->mutex_);
  if (absl::Status status = disk_->CheckParent("open", path); !status.ok()) return status;
  if (!disk_->locks_.emplace(path, disk_->generation_).second) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is held by another process; stop that one, or use another directory"));
  }
  return std::make_unique<MemoryFileLock>(disk_.get(), path, disk_->generation_);
}

}  // namespace torchps
