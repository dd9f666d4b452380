#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/file_system.h"

namespace torchps {

// A disk in memory that breaks on demand: operations fail, writes end early, it is full, and a
// crash forgets what was not synced, or tears it.
//
// It is as forgetful as a disk may be and no more. What was written to a file since its last Sync
// may each be there or not after a crash, or be there in part, in any combination; where a later
// write is there and an earlier one is not, zeros are between. Names (creations, renames, removals)
// not yet covered by a SyncDirectory are there up to some point in their order. After a Sync that
// failed, what it should have covered is lost in the next crash even if a later Sync succeeds.
// Directories are on the disk at once, as FileSystem promises.
//
// Thread-safe. Files and locks may outlive a crash and do nothing then, but must not outlive the
// file system. All chance comes from the seed that Crash is given.
class FaultyFileSystem final : public FileSystem {
 public:
  enum class Operation {
    kCreate,
    kOpenForAppend,
    kOpenForReading,
    kWrite,  // Append and WriteAt
    kTruncate,
    kSync,
    kClose,
    kRead,
    kRename,
    kRemove,  // of files and directories
    kCreateDirectories,
    kSyncDirectory,
    kList,
    kLock,
  };

  struct Fault {
    int error_number = 0;     // ENOSPC, EIO, ...
    size_t bytes_before = 0;  // kWrite: so many bytes reach the file all the same
  };
  // Asked before each operation, without a lock held; a fault is what the operation answers.
  using FaultHook =
      std::function<std::optional<Fault>(Operation operation, const std::string& path)>;

  // What open files and the file system share; the implementation's.
  class Disk;

  FaultyFileSystem();
  ~FaultyFileSystem() override;

  // --- What goes wrong ---

  void SetFaultHook(FaultHook hook);  // null: nothing
  // The n-th operation from now, from 1, fails once; the hook is asked for the others.
  void FailNth(int64_t n, Fault fault);
  // From the n-th operation from now on the machine is off: nothing has an effect, everything is
  // UNAVAILABLE, until Crash. 1 is the next one.
  void PowerOffAt(int64_t n);
  // Bytes that all files may have together; a write beyond it fills the rest and is ENOSPC.
  void SetCapacity(int64_t bytes);

  // A power cut, after which the machine is on again: see above. Locks are free, open files dead.
  void Crash(uint64_t seed);
  // All processes are killed and the machine goes on: files stay as they are, locks are free, open
  // files dead.
  void KillProcesses();

  // Operations so far, those that failed included.
  int64_t operations() const;
  // Flips one bit of a file, on the disk and in every cache. REQUIRES: it has that byte.
  void FlipBit(const std::string& path, int64_t byte, int bit);

  // --- FileSystem ---

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

 private:
  const std::unique_ptr<Disk> disk_;
};

}  // namespace torchps
