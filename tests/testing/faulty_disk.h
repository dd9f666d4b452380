#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/mutex.h"

// Implementation of FaultyFileSystem: the state of the disk.

namespace torchps::faulty {

// Describes a change of a file that is not yet synced.
struct PendingChange {
  bool truncates = false;
  int64_t offset = 0;  // or the new size, if `truncates`
  std::string data;
  bool forgotten = false;  // lost in the next crash, because a Sync failed
};

struct Inode {
  std::string live;     // the content that readers get
  std::string durable;  // the content on the disk
  std::vector<PendingChange> pending;
};
using InodePtr = std::shared_ptr<Inode>;

inline void Write(std::string* file, int64_t offset, absl::string_view data) {
  const size_t end = static_cast<size_t>(offset) + data.size();
  if (file->size() < end) file->resize(end, '\0');
  file->replace(static_cast<size_t>(offset), data.size(), data.data(), data.size());
}

// Describes a change of a directory that is not yet synced: `path` now names `inode`, or no file.
// After a rename within the directory, `former_path` is the old name; otherwise it is empty.
struct PendingName {
  std::string path;
  InodePtr inode;  // null: the name was removed
  std::string former_path;
};

inline std::string Clean(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace torchps::faulty

namespace torchps {

// State of a FaultyFileSystem. The members are public for this file and faulty_files.h.
class FaultyFileSystem::Disk {
 public:
  Disk() { directories_ = {"/", "."}; }

  // Counts the operation and returns the operation's fault, if any. The caller applies the fault.
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
  // Rises with each Crash() and KillProcesses(). Files and locks of an earlier generation do
  // nothing.
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;

  std::map<std::string, faulty::InodePtr> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, faulty::InodePtr> durable_names_ ABSL_GUARDED_BY(mutex_);
  // Unsynced changes of each directory, in the order in which they were made.
  std::map<std::string, std::vector<faulty::PendingName>> pending_names_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> directories_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> locks_ ABSL_GUARDED_BY(mutex_);  // by path: generation_

  int64_t UsedBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t used = 0;
    for (const auto& [path, inode] : names_) used += static_cast<int64_t>(inode->live.size());
    return used;
  }

  void Bind(const std::string& path, faulty::InodePtr inode, const std::string& former_path = "")
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    pending_names_[ParentDirectory(path)].push_back({path, inode, former_path});
    if (!former_path.empty()) names_.erase(former_path);
    if (inode == nullptr) {
      names_.erase(path);
    } else {
      names_[path] = std::move(inode);
    }
  }

  void BindDurably(const faulty::PendingName& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!name.former_path.empty()) durable_names_.erase(name.former_path);
    if (name.inode == nullptr) {
      durable_names_.erase(name.path);
    } else {
      durable_names_[name.path] = name.inode;
    }
  }

  // Returns ENOENT's status if the parent directory of `path` does not exist.
  absl::Status CheckParent(absl::string_view doing, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (directories_.count(ParentDirectory(path)) > 0) return absl::OkStatus();
    return FileError(FileAction::kWrite, doing, path, ENOENT);
  }
};

}  // namespace torchps
