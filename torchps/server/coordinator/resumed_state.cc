#include "torchps/server/coordinator/resumed_state.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/checkpoint_reader.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/common/types.h"

namespace torchps {
namespace {

// Returns an error if a shard of the checkpoint cannot be loaded. Reads only the shards in this
// directory, which are all shards if the servers share it. Servers also skip checkpoints that they
// cannot load, so the job must not resume from one.
absl::Status CheckShards(const CheckpointDirectory& directory, const Manifest& manifest,
                         const std::function<absl::Status(uint64_t checkpoint)>& on_shard) {
  const absl::StatusOr<ManifestBlocks> cut = GetBlocks(manifest);
  if (!cut.ok()) return cut.status();
  const int servers = manifest.server_count();
  int slots = -1;
  for (int server = 0; server < servers; ++server) {
    if (cut->blocks.owned_by(server).empty()) continue;
    const std::string path = directory.ShardPath(manifest.checkpoint(), server, servers);
    if (absl::IsNotFound(directory.files().OpenForReading(path).status())) continue;
    if (absl::Status going_on = on_shard(manifest.checkpoint()); !going_on.ok()) return going_on;
    std::vector<BlockRange> needed;
    for (const BlockId block : cut->blocks.owned_by(server)) {
      needed.push_back(cut->blocks.blocks()[block]);
    }
    const auto reader =
        CheckpointReader::Open(&directory.files(), {directory.path()}, manifest, needed);
    if (!reader.ok()) return reader.status();
    if (slots >= 0 && (*reader)->slots() != slots) {
      return absl::DataLossError(absl::StrCat("the shards of checkpoint ", manifest.checkpoint(),
                                              " have ", slots, " and ", (*reader)->slots(),
                                              " arrays of the optimizer; expected the same"));
    }
    slots = (*reader)->slots();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResumedState> FindResumedState(
    const CheckpointDirectory& directory, const CoordinatorStore& store,
    const std::function<absl::Status(uint64_t checkpoint)>& on_shard) {
  std::string damage;
  const absl::StatusOr<std::optional<CoordinatorState>> latest = store.Load(&damage);
  const bool has_latest = latest.ok() && latest->has_value();
  std::vector<std::string> passed_over;
  if (!damage.empty()) passed_over.push_back(damage);
  if (has_latest && (*latest)->job().durability().level() == DurabilitySpec::LOG) {
    return ResumedState{**latest, passed_over};
  }

  // The maximum over all checkpoints, including skipped ones. Servers compare incarnations to
  // recognize checkpoints from before the resume (IsOfLaterGeneration in torchps/common/types.h).
  Incarnation next_incarnation = 0;
  absl::StatusOr<Manifest> manifest = directory.Newest(
      [&](const Manifest& one) {
        next_incarnation = std::max(next_incarnation, one.coordinator().next_incarnation());
        return CheckShards(directory, one, on_shard);
      },
      &passed_over);
  if (absl::IsNotFound(manifest.status())) {
    if (!latest.ok()) return latest.status();
    return absl::NotFoundError(
        absl::StrCat("--resume: ", directory.path(),
                     " contains no checkpoint to continue from; without --resume ",
                     "the job starts from the beginning, in an empty directory"));
  }
  if (!manifest.ok()) return manifest.status();

  CoordinatorState state = manifest->coordinator();
  const uint64_t number = manifest->checkpoint();
  state.set_resumed_checkpoint(number);
  state.set_next_incarnation(next_incarnation);
  const absl::StatusOr<std::vector<uint64_t>> complete = directory.Complete();
  if (!complete.ok()) return complete.status();
  state.clear_kept_checkpoint();
  for (const uint64_t kept : *complete) {
    if (kept <= number) state.add_kept_checkpoint(kept);
  }
  CheckpointStatus& status = *state.mutable_checkpoint();
  status.set_number(number);
  status.set_nonfinite_blocks(NonfiniteBlocks(*manifest));
  status.set_directory(directory.CheckpointPath(number));
  // Never reuse the number of a later checkpoint, complete or not.
  const absl::StatusOr<uint64_t> highest = directory.HighestNumber();
  if (!highest.ok()) return highest.status();
  uint64_t last = std::max(number, *highest);
  if (has_latest && (*latest)->job_id() == state.job_id()) {
    last = std::max(last, (*latest)->last_checkpoint());
    // New states must have a higher revision than existing ones.
    state.set_revision(std::max(state.revision(), (*latest)->revision()));
    state.set_next_incarnation(std::max(state.next_incarnation(), (*latest)->next_incarnation()));
  }
  state.set_last_checkpoint(std::max(state.last_checkpoint(), last));
  return ResumedState{std::move(state), std::move(passed_over)};
}

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
