#include "tests/simulation/process_files.h"

#include <optional>

namespace torchps::simulation {

class ProcessFiles::Writable final : public WritableFile {
 public:
  Writable(const ProcessFiles* files, std::string path, std::unique_ptr<WritableFile> file)
      : files_(files), path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Append(absl::string_view data) override {
    files_->Before(Operation::kWrite, path_);
    return file_->Append(data);
  }
  absl::Status WriteAt(int64_t offset, absl::string_view data) override {
    files_->Before(Operation::kWrite, path_);
    return file_->WriteAt(offset, data);
  }
  absl::Status Truncate(int64_t size) override {
    files_->Before(Operation::kTruncate, path_);
    return file_->Truncate(size);
  }
  absl::Status Sync() override {
    files_->Before(Operation::kSync, path_);
    return file_->Sync();
  }
  absl::Status Close() override {
    files_->Before(Operation::kClose, path_);
    return file_->Close();
  }
  int64_t size() const override { return file_->size(); }

 private:
  const ProcessFiles* const files_;
  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
};

class ProcessFiles::Readable final : public ReadableFile {
 public:
  Readable(const ProcessFiles* files, std::string path, std::unique_ptr<ReadableFile> file)
      : files_(files), path_(std::move(path)), file_(std::move(file)) {}

  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    files_->Before(Operation::kRead, path_);
    return file_->ReadAt(offset, out);
  }
  int64_t size() const override { return file_->size(); }

 private:
  const ProcessFiles* const files_;
  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
};

void ProcessFiles::Before(Operation operation, const std::string& path) const {
  if (const std::optional<FaultyFileSystem::Fault> fault = hook_(operation, path)) {
    disk_->FailNth(1, *fault);
  }
}

absl::StatusOr<std::unique_ptr<WritableFile>> ProcessFiles::CreateFile(const std::string& path) {
  Before(Operation::kCreate, path);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk_->CreateFile(path);
  if (!file.ok()) return file.status();
  return std::make_unique<Writable>(this, path, *std::move(file));
}

absl::StatusOr<std::unique_ptr<WritableFile>> ProcessFiles::OpenForAppend(const std::string& path) {
  Before(Operation::kOpenForAppend, path);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk_->OpenForAppend(path);
  if (!file.ok()) return file.status();
  return std::make_unique<Writable>(this, path, *std::move(file));
}

absl::StatusOr<std::unique_ptr<ReadableFile>> ProcessFiles::OpenForReading(
    const std::string& path) {
  Before(Operation::kOpenForReading, path);
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = disk_->OpenForReading(path);
  if (!file.ok()) return file.status();
  return std::make_unique<Readable>(this, path, *std::move(file));
}

absl::Status ProcessFiles::Rename(const std::string& from, const std::string& to) {
  Before(Operation::kRename, to);
  return disk_->Rename(from, to);
}

absl::Status ProcessFiles::RemoveFile(const std::string& path) {
  Before(Operation::kRemove, path);
  return disk_->RemoveFile(path);
}

absl::Status ProcessFiles::RemoveDirectory(const std::string& path) {
  Before(Operation::kRemove, path);
  return disk_->RemoveDirectory(path);
}

absl::Status ProcessFiles::CreateDirectories(const std::string& path) {
  Before(Operation::kCreateDirectories, path);
  return disk_->CreateDirectories(path);
}

absl::Status ProcessFiles::SyncDirectory(const std::string& path) {
  Before(Operation::kSyncDirectory, path);
  return disk_->SyncDirectory(path);
}

absl::StatusOr<std::vector<std::string>> ProcessFiles::List(const std::string& path) {
  Before(Operation::kList, path);
  return disk_->List(path);
}

absl::StatusOr<int64_t> ProcessFiles::FreeBytes(const std::string& path) {
  return disk_->FreeBytes(path);
}

absl::StatusOr<std::unique_ptr<FileLock>> ProcessFiles::Lock(const std::string& path) {
  Before(Operation::kLock, path);
  return disk_->Lock(path);
}

}  // namespace torchps::simulation
