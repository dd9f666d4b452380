#include "server/coordinator/resume_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint_directory.h"

namespace torchps {

ResumeReader::ResumeReader(FileSystem* files, std::string directory)
    : files_(files), directory_(std::move(directory)) {
  thread_ = std::thread([this] {
    absl::StatusOr<Found> found = Read();
    MutexLock lock(&mutex_);
    found_ = std::move(found);
  });
}

ResumeReader::~ResumeReader() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

std::optional<absl::StatusOr<ResumeReader::Found>> ResumeReader::Take() {
  MutexLock lock(&mutex_);
  return std::exchange(found_, std::nullopt);
}

std::string ResumeReader::Describe() const {
  MutexLock lock(&mutex_);
  return checkpoint_ == 0 ? absl::StrCat("searches ", directory_, " for the job's state")
                          : absl::StrCat("reads checkpoint ", checkpoint_);
}

absl::StatusOr<ResumeReader::Found> ResumeReader::Read() {
  absl::StatusOr<std::unique_ptr<CoordinatorStore>> store =
      CoordinatorStore::Open(files_, directory_);
  if (!store.ok()) return store.status();
  absl::StatusOr<ResumedState> resumed = FindResumedState(
      CheckpointDirectory(files_, directory_), **store, [this](uint64_t checkpoint) {
        MutexLock lock(&mutex_);
        checkpoint_ = checkpoint;
        return stopping_ ? absl::CancelledError("the coordinator is shutting down")
                         : absl::OkStatus();
      });
  if (!resumed.ok()) return resumed.status();
  return Found{*std::move(store), *std::move(resumed)};
}

}  // namespace torchps
