#include "tests/testing/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/mutex.h"
#include "common/split_mix64.h"

namespace torchps {
namespace {

using Operation = FaultyFileSystem::Operation;
using Fault = FaultyFileSystem::Fault;

// One change of a file that no Sync has covered yet.
struct PendingChange {
  bool truncates = false;
  int64_t offset = 0;  // or the new size
  std::string data;
  bool forgotten = false;  // a Sync that failed should have covered it
};

struct Inode {
  std::string live;     // what readers see
  std::string durable;  // what is on the disk
  std::vector<PendingChange> pending;
};
using InodePtr = std::shared_ptr<Inode>;

void Write(std::string* file, int64_t offset, absl::string_view data) {
  const size_t end = static_cast<size_t>(offset) + data.size();
  if (file->size() < end) file->resize(end, '\0');
  file->replace(static_cast<size_t>(offset), data.size(), data.data(), data.size());
}

// A name that was bound to a file, or to nothing, and the one that it had before in the same
// directory.
struct PendingName {
  std::string path;
  InodePtr inode;  // null: the name is gone
  std::string former_path;
};

std::string Clean(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

class FaultyFileSystem::Disk {
 public:
  Disk() { directories_ = {"/", "."}; }

  // Counts the operation and says how it fails, if it does; what else it does is up to the caller.
  std::optional<Fault> Begin(Operation operation, const std::string& path)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    FaultHook hook;
    {
      const MutexLock lock(&mutex_);
      ++operations_;
      if (operations_ >= off_at_) return Fault{ESHUTDOWN, 0};
      if (operations_ == fail_at_) return fault_;
      hook = hook_;
    }
    return hook == nullptr ? std::nullopt : hook(operation, path);
  }

  Mutex mutex_;
  FaultHook hook_ ABSL_GUARDED_BY(mutex_);
  int64_t operations_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t fail_at_ ABSL_GUARDED_BY(mutex_) = -1;
  Fault fault_ ABSL_GUARDED_BY(mutex_);
  int64_t off_at_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  int64_t capacity_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;

  std::map<std::string, InodePtr> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, InodePtr> durable_names_ ABSL_GUARDED_BY(mutex_);
  // By directory, in their order.
  std::map<std::string, std::vector<PendingName>> pending_names_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> directories_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> locks_ ABSL_GUARDED_BY(mutex_);  // path: generation

  int64_t UsedBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t used = 0;
    for (const auto& [path, inode] : names_) used += static_cast<int64_t>(inode->live.size());
    return used;
  }

  void Bind(const std::string& path, InodePtr inode, const std::string& former_path = "")
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    pending_names_[ParentDirectory(path)].push_back({path, inode, former_path});
    if (!former_path.empty()) names_.erase(former_path);
    if (inode == nullptr) {
      names_.erase(path);
    } else {
      names_[path] = std::move(inode);
    }
  }

  void BindDurably(const PendingName& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!name.former_path.empty()) durable_names_.erase(name.former_path);
    if (name.inode == nullptr) {
      durable_names_.erase(name.path);
    } else {
      durable_names_[name.path] = name.inode;
    }
  }

  // Whether `path` may be made: its parent must be there.
  absl::Status CheckParent(absl::string_view doing, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (directories_.count(ParentDirectory(path)) > 0) return absl::OkStatus();
    return FileError(FileAction::kWrite, doing, path, ENOENT);
  }
};

namespace {

using Disk = FaultyFileSystem::Disk;
using DiskFault = std::optional<Fault>;

absl::Status Failed(FileAction action, absl::string_view doing, const std::string& path,
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
      return absl::InvalidArgumentError(absl::StrCat("cannot write behind the end of ", path_));
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

}  // namespace

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

void FaultyFileSystem::Crash(uint64_t seed) {
  const MutexLock lock(&disk_->mutex_);
  const auto chance = [&seed](uint64_t bound) { return UniformBelow(seed, bound); };
  // Half of the crashes are kind or harsh throughout, so that the extremes are met too.
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

  // In the order of names, so that a seed means one thing.
  for (auto& [path, inode] : disk_->names_) {
    for (const PendingChange& change : inode->pending) {
      if (change.forgotten || !survives()) continue;
      if (change.truncates) {
        inode->durable.resize(static_cast<size_t>(change.offset), '\0');
        continue;
      }
      absl::string_view data = change.data;
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
  // Its names are gone with it; a crash would otherwise find files without a directory.
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
