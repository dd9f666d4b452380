#include "server/coordinator/model_store.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/safetensors_file.h"

namespace torchps {

absl::Status CoordinatorIsShuttingDown() {
  return absl::UnavailableError("the coordinator is shutting down");
}

namespace {

constexpr char kUnfinished[] = ".part";

// Returns the score in a model file's metadata, or nullopt if the file or the score is missing.
std::optional<double> ScoreIn(FileSystem* files, const std::string& path) {
  const auto reader = SafetensorsReader::Open(files, path);
  if (!reader.ok()) return std::nullopt;
  const auto found = (*reader)->metadata().find("score");
  double score = 0;
  if (found == (*reader)->metadata().end() || !absl::SimpleAtod(found->second, &score)) {
    return std::nullopt;
  }
  return score;
}

void RemoveUnfinished(FileSystem* files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = files->List(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, kUnfinished)) continue;
    files->RemoveFile(absl::StrCat(directory, "/", name)).IgnoreError();
  }
}

}  // namespace

const std::string& ModelStore::GetDirectory(ModelFile file) const {
  return file == MODEL_CONSTANTS ? directory_ : model_directory_;
}

std::string ModelStore::MakePath(ModelFile file) const {
  switch (file) {
    case MODEL_FINAL:
      return absl::StrCat(GetDirectory(file), "/model.safetensors");
    case MODEL_BEST:
      return absl::StrCat(GetDirectory(file), "/best.safetensors");
    case MODEL_CONSTANTS:
      return absl::StrCat(GetDirectory(file), "/constants.safetensors");
    default:
      return "";
  }
}

ModelStore::ModelStore(FileSystem* files, std::string directory, std::string model_directory,
                       std::function<void(const std::string& file)> stored)
    : files_(files),
      directory_(std::move(directory)),
      model_directory_(std::move(model_directory)),
      stored_(std::move(stored)) {
  RemoveUnfinished(files_, directory_);
  RemoveUnfinished(files_, model_directory_);
  thread_ = std::thread([this] { Serve(); });
}

ModelStore::~ModelStore() { Stop(); }

void ModelStore::Stop() {
  std::deque<std::pair<StoreModelRequest, Answer>> left;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    std::swap(left, waiting_);
    wakes_.SignalAll();
  }
  thread_.join();
  for (const auto& [piece, answer] : left) answer(CoordinatorIsShuttingDown());
}

void ModelStore::Receive(StoreModelRequest piece, Answer answer) {
  {
    MutexLock lock(&mutex_);
    if (!stopped_) {
      waiting_.emplace_back(std::move(piece), std::move(answer));
      wakes_.SignalAll();
      return;
    }
  }
  answer(CoordinatorIsShuttingDown());
}

void ModelStore::Serve() {
  while (true) {
    std::pair<StoreModelRequest, Answer> next;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopped_) wakes_.Wait(&mutex_);
      if (stopped_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const absl::Status written = Write(next.first);
    if (written.ok()) {
      next.second(StoreModelReply());
    } else {
      next.second(written);
    }
  }
}

std::string ModelStore::GetTemporary(const StoreModelRequest& piece) const {
  return absl::StrCat(MakePath(piece.file()), ".slot-", piece.slot(), kUnfinished);
}

absl::Status ModelStore::Write(const StoreModelRequest& piece) {
  const int64_t size = static_cast<int64_t>(piece.data().size());
  if (MakePath(piece.file()).empty() || size == 0 || piece.offset() < 0 ||
      piece.offset() > piece.bytes() - size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid piece of ", size, " bytes at offset ", piece.offset(), " of model file ",
        piece.file(), "; expected a piece within the ", piece.bytes(), " bytes of the file"));
  }
  const std::string temporary = GetTemporary(piece);
  const Key key(piece.file(), piece.slot());
  if (piece.offset() == 0) {
    if (absl::Status status = Begin(piece, temporary); !status.ok()) return status;
  }
  const auto found = uploads_.find(key);
  if (found == uploads_.end() || found->second.incarnation != piece.incarnation() ||
      found->second.bytes != piece.bytes()) {
    return absl::OutOfRangeError(absl::StrCat("no upload of model file ", piece.file(), " with ",
                                              piece.bytes(), " bytes by incarnation ",
                                              piece.incarnation(), " of slot ", piece.slot(),
                                              " is in progress; start again at offset 0"));
  }
  Upload& upload = found->second;
  // The worker repeats a piece if the reply was lost.
  if (upload.file->size() == piece.offset() + size) return absl::OkStatus();
  if (upload.file->size() != piece.offset()) {
    return absl::OutOfRangeError(absl::StrCat("expected the piece at offset ", upload.file->size(),
                                              ", got offset ", piece.offset(),
                                              "; start again at offset 0"));
  }
  absl::Status status = upload.file->Append(piece.data());
  if (status.ok() && upload.file->size() < upload.bytes) return status;
  if (status.ok()) status = Finish(piece, temporary);
  uploads_.erase(key);
  if (!status.ok()) files_->RemoveFile(temporary).IgnoreError();
  return status;
}

absl::Status ModelStore::Begin(const StoreModelRequest& piece, const std::string& temporary) {
  const std::string& directory = GetDirectory(piece.file());
  const absl::StatusOr<int64_t> room = files_->FreeBytes(directory);
  if (room.ok() && *room < piece.bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(directory, " has ", *room, " free bytes; the model needs ", piece.bytes()));
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->CreateFile(temporary);
  if (!file.ok()) return file.status();
  uploads_[{piece.file(), piece.slot()}] = {piece.incarnation(), piece.bytes(), *std::move(file)};
  return absl::OkStatus();
}

absl::Status ModelStore::Finish(const StoreModelRequest& piece, const std::string& temporary) {
  WritableFile& file = *uploads_[{piece.file(), piece.slot()}].file;
  absl::Status status = file.Sync();
  if (absl::Status closed = file.Close(); status.ok()) status = closed;
  if (!status.ok()) return status;
  if (const auto reader = SafetensorsReader::Open(files_, temporary); !reader.ok()) {
    return absl::InvalidArgumentError(reader.status().message());
  }
  const std::string& directory = GetDirectory(piece.file());
  const std::string path = MakePath(piece.file());
  if (piece.file() == MODEL_BEST) {
    const std::optional<double> before = ScoreIn(files_, path);
    // Another slot has already stored a model that is at least as good.
    if (before.has_value() && *before >= ScoreIn(files_, temporary)) {
      return files_->RemoveFile(temporary);
    }
  }
  if (status = files_->Rename(temporary, path); !status.ok()) return status;
  status = files_->SyncDirectory(directory);
  if (status.ok() && stored_ != nullptr && directory == directory_) {
    stored_(path.substr(directory.size() + 1));
  }
  return status;
}

}  // namespace torchps
