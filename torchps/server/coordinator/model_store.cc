#include "torchps/server/coordinator/model_store.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/transport/status_codec.h"

namespace torchps {

absl::Status CoordinatorIsShuttingDown() {
  return absl::UnavailableError("the coordinator is shutting down");
}

namespace {

constexpr char kUnfinished[] = ".part";
constexpr char kReady[] = ".ready";
// For headers, and for buffers that a module creates in its first forward pass.
constexpr int64_t kRoomInFile = 64 << 20;

// Returns the score in a model file's metadata, or nullopt if the file is missing or the score is
// missing or not finite.
absl::StatusOr<std::optional<double>> ScoreIn(FileSystem* files, const std::string& path) {
  const auto reader = SafetensorsReader::Open(files, path);
  if (absl::IsNotFound(reader.status())) return std::nullopt;
  if (!reader.ok()) return reader.status();
  const auto found = (*reader)->metadata().find("score");
  double score = 0;
  if (found == (*reader)->metadata().end() || !absl::SimpleAtod(found->second, &score) ||
      !std::isfinite(score)) {
    return std::nullopt;
  }
  return score;
}

void RemoveFiles(FileSystem* files, const std::string& directory, absl::string_view suffix) {
  const absl::StatusOr<std::vector<std::string>> names = files->List(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, suffix)) continue;
    files->RemoveFile(absl::StrCat(directory, "/", name)).IgnoreError();
  }
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Returns INVALID_ARGUMENT if the tensors of an uploaded file are not those that the job permits.
absl::Status CheckTensors(const std::vector<TensorInfo>& tensors, ModelFile file,
                          const ModelLimits& limits) {
  std::map<absl::string_view, const TensorInfo*> found;
  for (const TensorInfo& tensor : tensors) found[tensor.name] = &tensor;
  for (const Segment& segment : limits.layout.segments()) {
    const auto match = found.find(segment.name);
    if (file == MODEL_CONSTANTS) {
      if (match == found.end()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the uploaded constants contain '", segment.name,
                       "', which servers hold; expected tensors that no server holds"));
    }
    if (match == found.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the uploaded model lacks '", segment.name,
                                                     "'; expected all tensors of the job's model"));
    }
    const TensorInfo& tensor = *match->second;
    if (tensor.dtype != Dtype::kF32 || tensor.shape != segment.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", segment.name, "' in the uploaded model has shape ",
                       ShapeText(tensor.shape), tensor.dtype == Dtype::kF32 ? "" : ", not in F32",
                       "; expected ", ShapeText(segment.shape), " in F32"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ModelLimits::MaxFileBytes() const {
  const int64_t of_layout = layout.size() * static_cast<int64_t>(sizeof(float));
  return 2 * std::max(state_bytes, of_layout) + kRoomInFile;
}

const std::string& ModelStore::GetDirectory(ModelFile file) const {
  return file == MODEL_CONSTANTS ? options_.directory : options_.model_directory;
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

std::string ModelStore::GetTemporary(ModelFile file, SlotId slot) const {
  return absl::StrCat(MakePath(file), ".slot-", slot, kUnfinished);
}

std::string ModelStore::GetReady(SlotId slot) const {
  return absl::StrCat(MakePath(MODEL_BEST), ".slot-", slot, kReady);
}

ModelStore::ModelStore(Options options) : options_(std::move(options)), files_(options_.files) {
  RemoveFiles(files_, options_.directory, kUnfinished);
  RemoveFiles(files_, options_.model_directory, kUnfinished);
  if (!options_.continues) RemoveFiles(files_, options_.model_directory, kReady);
  thread_ = std::thread([this] { Serve(); });
}

ModelStore::~ModelStore() { Stop(); }

void ModelStore::Stop() {
  std::deque<Task> left;
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    std::swap(left, waiting_);
    wakes_.SignalAll();
  }
  thread_.join();
  for (const Task& task : left) task.refuse(CoordinatorIsShuttingDown());
}

void ModelStore::Receive(std::shared_ptr<const StoreModelRequest> piece,
                         std::shared_ptr<const ModelLimits> limits, Answer answer) {
  const auto size = static_cast<int64_t>(piece->data().size());
  if (size > kMaxPieceBytes) {
    answer(absl::InvalidArgumentError(absl::StrCat("a piece of a model has ", size,
                                                   " bytes; expected at most ", kMaxPieceBytes)));
    return;
  }
  Task task;
  task.slot = piece->slot();
  task.bytes = size;
  task.refuse = answer;
  task.run = [this, piece = std::move(piece), limits = std::move(limits),
              answer = std::move(answer)] {
    const absl::Status written = Write(*piece, *limits);
    if (written.ok()) {
      answer(StoreModelReply());
    } else {
      answer(written);
    }
  };
  Add(std::move(task));
}

void ModelStore::PublishBest(SlotId slot, std::optional<double> score, Done done) {
  Task task;
  task.refuse = done;
  task.run = [this, slot, score, done = std::move(done)] { done(Publish(slot, score)); };
  Add(std::move(task));
}

void ModelStore::Forget(SlotId slot) {
  Task task;
  task.run = [this, slot] { RemoveFilesOf(slot); };
  task.refuse = [](const absl::Status&) {};
  Add(std::move(task));
}

void ModelStore::Add(Task task) {
  std::vector<std::pair<std::function<void(const absl::Status&)>, absl::Status>> refused;
  {
    MutexLock lock(&mutex_);
    const auto earlier = std::find_if(waiting_.begin(), waiting_.end(), [&](const Task& other) {
      return task.slot != -1 && other.slot == task.slot;
    });
    if (earlier != waiting_.end()) {
      refused.emplace_back(std::move(earlier->refuse),
                           absl::CancelledError("replaced by a repetition of this call"));
      waiting_bytes_ -= earlier->bytes;
      waiting_.erase(earlier);
    }
    if (stopped_) {
      refused.emplace_back(std::move(task.refuse), CoordinatorIsShuttingDown());
    } else if (task.bytes > 0 && waiting_bytes_ + task.bytes > kMaxWaitingBytes) {
      refused.emplace_back(
          std::move(task.refuse),
          BusyError("the coordinator writes the models of other slots; try again later",
                    "writes the models of other slots"));
    } else {
      waiting_bytes_ += task.bytes;
      waiting_.push_back(std::move(task));
      wakes_.SignalAll();
    }
  }
  for (const auto& [refuse, why] : refused) refuse(why);
}

void ModelStore::Serve() {
  while (true) {
    Task next;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopped_) wakes_.Wait(&mutex_);
      if (stopped_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      waiting_bytes_ -= next.bytes;
    }
    next.run();
  }
}

absl::Status ModelStore::Write(const StoreModelRequest& piece, const ModelLimits& limits) {
  const int64_t size = static_cast<int64_t>(piece.data().size());
  if (MakePath(piece.file()).empty() || size == 0 || piece.offset() < 0 ||
      piece.offset() > piece.bytes() - size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "invalid piece of ", size, " bytes at offset ", piece.offset(), " of model file ",
        piece.file(), "; expected a piece within the ", piece.bytes(), " bytes of the file"));
  }
  const std::string temporary = GetTemporary(piece.file(), piece.slot());
  const Key key(piece.file(), piece.slot());
  if (piece.offset() == 0) {
    if (absl::Status status = Begin(piece, limits, temporary); !status.ok()) return status;
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
  const int64_t written = upload.file == nullptr ? upload.bytes : upload.file->size();
  // The worker repeats a piece if the reply was lost.
  if (written == piece.offset() + size) return absl::OkStatus();
  if (written != piece.offset()) {
    return absl::OutOfRangeError(absl::StrCat("expected the piece at offset ", written,
                                              ", got offset ", piece.offset(),
                                              "; start again at offset 0"));
  }
  absl::Status status = upload.file->Append(piece.data());
  if (status.ok() && upload.file->size() < upload.bytes) return status;
  if (status.ok()) status = Finish(piece, limits, &upload, temporary);
  if (status.ok()) return status;
  uploads_.erase(key);
  files_->RemoveFile(temporary).IgnoreError();
  return status;
}

absl::Status ModelStore::Begin(const StoreModelRequest& piece, const ModelLimits& limits,
                               const std::string& temporary) {
  if (const int64_t most = limits.MaxFileBytes(); piece.bytes() > most) {
    return absl::InvalidArgumentError(absl::StrCat("the uploaded file has ", piece.bytes(),
                                                   " bytes; expected at most ", most,
                                                   " for the job's model"));
  }
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

absl::Status ModelStore::Finish(const StoreModelRequest& piece, const ModelLimits& limits,
                                Upload* upload, const std::string& temporary) {
  absl::Status status = upload->file->Sync();
  if (absl::Status closed = upload->file->Close(); status.ok()) status = closed;
  if (!status.ok()) return status;
  const auto reader = SafetensorsReader::Open(files_, temporary);
  if (!reader.ok()) return absl::InvalidArgumentError(reader.status().message());
  status = CheckTensors((*reader)->tensors(), piece.file(), limits);
  if (!status.ok()) return status;
  if (piece.file() == MODEL_BEST) {
    status = files_->Rename(temporary, GetReady(piece.slot()));
    if (status.ok()) status = files_->SyncDirectory(GetDirectory(MODEL_BEST));
  } else {
    status = PutInPlace(temporary, piece.file());
  }
  if (status.ok()) upload->file = nullptr;
  return status;
}

absl::Status ModelStore::PutInPlace(const std::string& from, ModelFile file) {
  const std::string path = MakePath(file);
  const std::string& directory = GetDirectory(file);
  if (absl::Status status = files_->Rename(from, path); !status.ok()) return status;
  const absl::Status status = files_->SyncDirectory(directory);
  if (status.ok() && options_.stored != nullptr && directory == options_.directory) {
    options_.stored(path.substr(directory.size() + 1));
  }
  return status;
}

absl::Status ModelStore::Publish(SlotId slot, std::optional<double> score) {
  uploads_.erase({MODEL_BEST, slot});
  const std::string ready = GetReady(slot);
  if (absl::IsNotFound(files_->OpenForReading(ready).status())) return absl::OkStatus();
  const absl::StatusOr<std::optional<double>> own = ScoreIn(files_, ready);
  if (!own.ok()) return own.status();
  if (!score.has_value() || *own != score) {
    files_->RemoveFile(ready).IgnoreError();
    const auto text = [](std::optional<double> of) {
      return of.has_value() ? absl::StrFormat("score %.9g", *of) : std::string("no score");
    };
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " uploaded a best model with ",
                                                   text(*own), ", but reported ", text(score)));
  }
  const absl::StatusOr<std::optional<double>> best = ScoreIn(files_, MakePath(MODEL_BEST));
  // Another slot has already stored a model that is at least as good. A damaged file is replaced.
  if (best.ok() && best->has_value() && **best >= *score) return files_->RemoveFile(ready);
  return PutInPlace(ready, MODEL_BEST);
}

void ModelStore::RemoveFilesOf(SlotId slot) {
  for (const ModelFile file : {MODEL_FINAL, MODEL_BEST, MODEL_CONSTANTS}) {
    const auto found = uploads_.find({file, slot});
    if (found == uploads_.end()) continue;
    if (found->second.file != nullptr) files_->RemoveFile(GetTemporary(file, slot)).IgnoreError();
    uploads_.erase(found);
  }
  files_->RemoveFile(GetReady(slot)).IgnoreError();
}

}  // namespace torchps
