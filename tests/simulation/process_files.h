#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/file_system.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps::simulation {

// A disk as one of several processes that share it sees it: what goes wrong is that process's own.
//
// Not thread-safe. Files and locks must not outlive this object, nor this object the disk.
class ProcessFiles final : public FileSystem {
 public:
  ProcessFiles(FaultyFileSystem* disk, FaultyFileSystem::FaultHook hook)
      : disk_(disk), hook_(std::move(hook)) {}

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
  class Writable;
  class Readable;
  using Operation = FaultyFileSystem::Operation;

  // Asks the hook, and lets the disk's next operation, which is to follow, fail as it says.
  void Before(Operation operation, const std::string& path) const;

  FaultyFileSystem* const disk_;
  const FaultyFileSystem::FaultHook hook_;
};

}  // namespace torchps::simulation
