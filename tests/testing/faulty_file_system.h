#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Implements a file system in memory that fails on demand: operations fail, writes are cut short,
// the disk is full, and a crash loses or tears unsynced data.
//
// A crash loses as much as a real disk may lose, but not more. Each write since a file's last Sync
// survives fully, not at all, up to some byte, or in some of its sectors, in any combination. If a
// later write survives and an earlier write does not, the gap is filled with zeros. Unsynced names
// (creations, renames, removals) survive up to some point in their order. After a failed Sync, the
// next crash loses the data that this Sync should have covered, even if a later Sync succeeds.
// Directories are durable at once, as FileSystem promises.
//
// Thread-safe. Files and locks may outlive a crash, and then do nothing, but must not outlive the
// file system. The seed of Crash() determines all random choices.
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
    size_t bytes_before = 0;  // kWrite: number of bytes written before the error
  };
  // Called before each operation, without a lock held. A returned fault is the operation's result.
  using FaultHook =
      std::function<std::optional<Fault>(Operation operation, const std::string& path)>;

  // State shared by open files and the file system. Implementation detail.
  class Disk;

  FaultyFileSystem();
  ~FaultyFileSystem() override;

  // --- Faults ---

  void SetFaultHook(FaultHook hook);  // null removes the hook
  // Makes the n-th operation from now fail once; 1 is the next operation. The hook is called for
  // the other operations.
  void FailNth(int64_t n, Fault fault);
  // Turns the machine off at the n-th operation from now; 1 is the next operation. Until Crash(),
  // all operations return UNAVAILABLE and have no effect.
  void PowerOffAt(int64_t n);
  // Sets the capacity of the disk in bytes. A write beyond it fills the disk and returns ENOSPC.
  void SetCapacity(int64_t bytes);
  // Sets the capacity so that `bytes` are free now.
  void LeaveFree(int64_t bytes);

  // Simulates a power cut and a restart of the machine, as described above. Releases locks and
  // invalidates open files.
  void Crash(uint64_t seed);
  // Replaces the disk by an empty one. Otherwise as Crash().
  void LoseDisk();
  // Simulates kill -9 for all processes, without a power cut. Files stay as they are. Releases
  // locks and invalidates open files.
  void KillProcesses();

  // Number of operations so far, including failed operations.
  int64_t operations() const;
  // Flips one bit of a file, on the disk and in the live content. REQUIRES: the file contains the
  // byte.
  void FlipBit(const std::string& path, int64_t byte, int bit);

  // Overwrites one sector of a file that `may_damage` accepts with other bytes of the disk, as a
  // disk that writes to the wrong place. Returns the path of the file; empty if there is none.
  using MayDamage = absl::FunctionRef<bool(const std::string& path, size_t bytes)>;
  std::string MisdirectWrite(uint64_t seed, MayDamage may_damage);

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
