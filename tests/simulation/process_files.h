#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/faulty_file_system.h"
#include "torchps/storage/file_system.h"

namespace torchps::simulation {

// A view of a shared disk for one process. Faults affect only this process.
//
// Not thread-safe. The disk must outlive this object, and this object must outlive files and locks.
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

  // Asks the hook for a fault and applies it to the disk's next operation. The caller performs that
  // operation immediately after.
  void Before(Operation operation, const std::string& path) const;

  FaultyFileSystem* const disk_;
  const FaultyFileSystem::FaultHook hook_;
};

}  // namespace torchps::simulation
