#include "torchps/server/coordinator/coordinator_store.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/storage/crc32c.h"

namespace torchps {
namespace {

constexpr char kMagic[] = "TPSCOOR1";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kHeaderBytes = kMagicBytes + 4;
// Upper bound for reading, far above the size of any job's state.
constexpr int64_t kMaxStateBytes = int64_t{256} << 20;

std::string Encode(const CoordinatorState& state) {
  std::string body;
  state.SerializeToString(&body);
  const uint32_t crc = Crc32c(0, body);
  std::string text(kMagic, kMagicBytes);
  for (int shift = 0; shift < 32; shift += 8) text.push_back(static_cast<char>(crc >> shift));
  return text + body;
}

}  // namespace

CoordinatorStore::CoordinatorStore(FileSystem* files, const std::string& directory)
    : files_(files),
      state_path_(CheckpointDirectory(files, directory).CoordinatorStatePath()),
      recent_path_(absl::StrCat(directory, "/coordinator.recent")) {}

absl::StatusOr<std::unique_ptr<CoordinatorStore>> CoordinatorStore::Open(
    FileSystem* files, const std::string& directory) {
  if (absl::Status made = files->CreateDirectories(directory); !made.ok()) return made;
  auto store = absl::WrapUnique(new CoordinatorStore(files, directory));
  absl::StatusOr<std::unique_ptr<FileLock>> lock =
      files->Lock(CheckpointDirectory(files, directory).CoordinatorLockPath());
  if (!lock.ok()) {
    // The other process may be about to exit, so the caller may retry.
    if (absl::IsFailedPrecondition(lock.status())) {
      return absl::UnavailableError(
          absl::StrCat("another process is the coordinator in ", directory,
                       "; --servers must list that server first: ", lock.status().message()));
    }
    return lock.status();
  }
  store->lock_ = *std::move(lock);
  return store;
}

absl::StatusOr<std::optional<CoordinatorState>> CoordinatorStore::Load(std::string* damage) const {
  absl::StatusOr<std::optional<CoordinatorState>> synced = LoadFrom(state_path_);
  absl::StatusOr<std::optional<CoordinatorState>> recent = LoadFrom(recent_path_);
  const bool has_synced = synced.ok() && synced->has_value();
  const bool has_recent = recent.ok() && recent->has_value();
  if (has_synced && has_recent) {
    // If the files belong to two jobs, the synced state is the later one, because new jobs sync
    // their first state. If both belong to one job, the state with the higher incarnations is
    // newer. Revisions alone do not decide: a process that could not read the latest state restarts
    // from a lower revision.
    const auto age = [](const CoordinatorState& state) {
      return std::make_pair(state.next_incarnation(), state.revision());
    };
    const bool newer = (*recent)->job_id() == (*synced)->job_id() && age(**recent) > age(**synced);
    return newer ? recent : synced;
  }
  if (has_synced) return synced;
  // The unsynced file may be torn by a power failure. Then a synced file exists, so damage of the
  // unsynced file alone is harmless.
  if (!has_recent || !(synced.ok() || absl::IsDataLoss(synced.status()))) return synced;
  if (!synced.ok() && damage != nullptr) {
    *damage =
        absl::StrCat(state_path_, " is damaged; the coordinator continues from ", recent_path_);
  }
  return recent;
}

absl::StatusOr<std::optional<CoordinatorState>> CoordinatorStore::LoadFrom(
    const std::string& path) const {
  const absl::StatusOr<std::string> text = ReadWholeFile(*files_, path, kMaxStateBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  const auto damaged = [&path](const char* what) {
    return absl::DataLossError(absl::StrCat(path, " is damaged (", what,
                                            "): ps_server --resume continues from the last "
                                            "checkpoint, another --dir starts a new job"));
  };
  if (text->size() < kHeaderBytes || std::memcmp(text->data(), kMagic, kMagicBytes) != 0) {
    return damaged("it is not a coordinator state");
  }
  uint32_t crc = 0;
  for (int i = 0; i < 4; ++i) {
    crc |= uint32_t{static_cast<unsigned char>((*text)[kMagicBytes + i])} << (8 * i);
  }
  const absl::string_view body = absl::string_view(*text).substr(kHeaderBytes);
  if (Crc32c(0, body) != crc) return damaged("its checksum differs");
  CoordinatorState state;
  if (!state.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return damaged("it cannot be parsed");
  }
  return state;
}

absl::StatusOr<uint64_t> CoordinatorStore::Sync() {
  const absl::StatusOr<std::optional<CoordinatorState>> state = LoadFrom(state_path_);
  if (!state.ok()) return state.status();
  if (!state->has_value()) return absl::NotFoundError(absl::StrCat("there is no ", state_path_));
  const absl::Status synced = files_->SyncDirectory(ParentDirectory(state_path_));
  if (!synced.ok()) return synced;
  return (*state)->revision();
}

absl::Status CoordinatorStore::Write(const CoordinatorState& state, bool sync) {
  const std::string text = Encode(state);
  if (sync) {
    const absl::Status synced = WriteFileAtomically(*files_, state_path_, text);
    if (!synced.ok()) return synced;
    // The other file only replaces this one if it gets damaged.
    WriteRecent(text).IgnoreError();
    return absl::OkStatus();
  }
  return WriteRecent(text);
}

absl::Status CoordinatorStore::WriteRecent(const std::string& text) {
  const std::string temporary = TemporaryPath(recent_path_);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->CreateFile(temporary);
  if (!file.ok()) return file.status();
  if (absl::Status status = (*file)->Append(text); !status.ok()) return status;
  if (absl::Status status = (*file)->Close(); !status.ok()) return status;
  return files_->Rename(temporary, recent_path_);
}

}  // namespace torchps
