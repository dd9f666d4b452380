#include "torchps/storage/slow_file_system.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace torchps {
namespace {

struct Slowness {
  SlowDisk disk;
  std::function<void(absl::Duration)> pause;

  void Read(size_t bytes) const {
    if (disk.bytes_per_second > 0) {
      pause(absl::Seconds(static_cast<double>(bytes) / disk.bytes_per_second));
    }
  }
  void Write(size_t bytes) const {
    if (!disk.reads_only) Read(bytes);
  }
  void Sync() const {
    if (disk.sync > absl::ZeroDuration()) pause(disk.sync);
  }
};

class SlowWritableFile final : public WritableFile {
 public:
  SlowWritableFile(std::unique_ptr<WritableFile> file, const Slowness* slowness)
      : file_(std::move(file)), slowness_(*slowness) {}

  absl::Status Append(absl::string_view data) override {
    slowness_.Write(data.size());
    return file_->Append(data);
  }
  absl::Status WriteAt(int64_t offset, absl::string_view data) override {
    slowness_.Write(data.size());
    return file_->WriteAt(offset, data);
  }
  absl::Status Truncate(int64_t size) override { return file_->Truncate(size); }
  absl::Status Sync() override {
    slowness_.Sync();
    return file_->Sync();
  }
  absl::Status Close() override { return file_->Close(); }
  int64_t size() const override { return file_->size(); }

 private:
  const std::unique_ptr<WritableFile> file_;
  const Slowness slowness_;
};

class SlowReadableFile final : public ReadableFile {
 public:
  SlowReadableFile(std::unique_ptr<ReadableFile> file, const Slowness* slowness)
      : file_(std::move(file)), slowness_(*slowness) {}

  absl::Status ReadAt(int64_t offset, absl::Span<char> out) const override {
    slowness_.Read(out.size());
    return file_->ReadAt(offset, out);
  }
  int64_t size() const override { return file_->size(); }

 private:
  const std::unique_ptr<ReadableFile> file_;
  const Slowness slowness_;
};

class SlowFileSystem final : public FileSystem {
 public:
  SlowFileSystem(FileSystem* files, Slowness slowness)
      : files_(*files), slowness_(std::move(slowness)) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override {
    return Slow<SlowWritableFile>(files_.CreateFile(path));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return Slow<SlowWritableFile>(files_.OpenForAppend(path));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForReading(const std::string& path) override {
    return Slow<SlowReadableFile>(files_.OpenForReading(path));
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status RemoveFile(const std::string& path) override { return files_.RemoveFile(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return files_.RemoveDirectory(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    slowness_.Sync();
    return files_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return files_.List(path);
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    return files_.FreeBytes(path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    return files_.Lock(path);
  }

 private:
  template <typename SlowFile, typename File>
  absl::StatusOr<std::unique_ptr<File>> Slow(absl::StatusOr<std::unique_ptr<File>> file) const {
    if (!file.ok()) return file.status();
    return std::unique_ptr<File>(std::make_unique<SlowFile>(*std::move(file), &slowness_));
  }

  FileSystem& files_;
  const Slowness slowness_;
};

}  // namespace

absl::StatusOr<SlowDisk> ParseSlowDisk(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> words =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  double megabytes = 0;
  SlowDisk disk;
  disk.reads_only = words.second == "reads";
  if (!absl::SimpleAtod(words.first, &megabytes) || !(megabytes > 0) || megabytes > 1e6 ||
      (words.first != text && !disk.reads_only &&
       (!absl::ParseDuration(words.second, &disk.sync) || disk.sync < absl::ZeroDuration() ||
        disk.sync > absl::Minutes(1)))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is not MB, MB:SYNC or MB:reads; expected MB per second above 0, optionally with "
        "the duration of a sync, at most a minute, or with reads to slow down only "
        "reads: 20, 20:100ms or 20:reads"));
  }
  disk.bytes_per_second = megabytes * 1e6;
  return disk;
}

std::unique_ptr<FileSystem> MakeSlowFileSystem(FileSystem* files, SlowDisk disk,
                                               std::function<void(absl::Duration)> pause) {
  if (pause == nullptr) pause = [](absl::Duration time) { absl::SleepFor(time); };
  return std::make_unique<SlowFileSystem>(files, Slowness{disk, std::move(pause)});
}

}  // namespace torchps
