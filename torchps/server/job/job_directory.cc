#include "torchps/server/job/job_directory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/checkpoint/checkpoint_reader.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/check.h"
#include "torchps/common/process/failpoint.h"
#include "torchps/server/push_log/log_reader.h"

namespace torchps {
namespace {

// A longer push log is shortened by a checkpoint, unless the checkpoint is about as large.
constexpr int64_t kLongLogBytes = int64_t{256} << 20;
// More than a manifest and the coordinator's state take on the disk.
constexpr int64_t kManifestBytes = int64_t{1} << 20;

}  // namespace

absl::Status UnknownJob() {
  return absl::NotFoundError(
      "this server does not know the job: it was replaced or lost the model; start the job again");
}

JobDirectory::JobDirectory(Options options)
    : options_(std::move(options)), directory_(options_.files, options_.path) {}

absl::StatusOr<std::optional<JobStorage::Origin>> JobDirectory::Open(const JobShare& share,
                                                                     ParameterStore* store) {
  Begin("looks for checkpoints");
  if (const absl::Status prepared = directory_.Prepare(); !prepared.ok()) return prepared;
  // Releases the lock if an earlier Open() of this object took it and then failed.
  lock_ = nullptr;
  absl::StatusOr<std::unique_ptr<FileLock>> lock =
      options_.files->Lock(directory_.ServerLockPath(share.server));
  if (!lock.ok()) return lock.status();
  lock_ = *std::move(lock);
  job_id_ = share.job_id;
  server_index_ = share.server;
  server_count_ = share.map.servers();
  store_ = store;
  if (options_.peer != nullptr) {
    JobBackup::Options copies;
    copies.peer = options_.peer;
    copies.clock = options_.clock;
    copies.progress = options_.progress;
    copies.log = options_.log;
    copies.job_id = job_id_;
    copies.server_index = server_index_;
    copies.server_count = server_count_;
    copies.has_thread = options_.has_threads;
    copies_ = std::make_unique<JobBackup>(&directory_, std::move(copies));
    const absl::StatusOr<std::vector<uint64_t>> complete = directory_.Complete();
    if (!complete.ok()) return complete.status();
    const absl::Status fetched = copies_->FetchIfLost(complete->empty() && !HasLog(share));
    if (!fetched.ok()) return fetched;
  }
  absl::StatusOr<std::optional<Origin>> origin = OpenOwn(share);
  if (origin.ok() && copies_ != nullptr) copies_->Start(log_.get());
  return origin;
}

JobDirectory::~JobDirectory() {
  // Stops the log and its copying, because their threads use each other.
  if (log_ != nullptr) log_->Stop();
}

absl::StatusOr<std::optional<JobStorage::Origin>> JobDirectory::OpenOwn(const JobShare& share) {
  const absl::StatusOr<std::vector<uint64_t>> complete = directory_.Complete();
  if (!complete.ok()) return complete.status();
  absl::StatusOr<std::optional<Origin>> origin = RestoreNewest(share);
  if (!origin.ok()) return origin;
  // Checked before OpenLog() creates a log.
  if (share.must_be_known && !origin->has_value() && !HasLog(share)) return UnknownJob();
  if (share.job.durability().level() == DurabilitySpec::LOG) {
    origin = OpenLog(share, *origin);
    if (!origin.ok() || goes_on_from_log()) return origin;
  }
  // An earlier process of this server may have written a shard of an incomplete checkpoint. The
  // current process reports the updates in that shard to the workers as lost, so the shard must
  // never be restored.
  const absl::Status disowned =
      directory_.RemoveShardsAbove(origin_.checkpoint, *complete, server_index_, server_count_);
  if (!disowned.ok()) return absl::UnavailableError(disowned.message());
  return origin;
}

bool JobDirectory::HasLog(const JobShare& share) const {
  const auto names = options_.files->List(directory_.LogPath(share.server, share.map.servers()));
  return names.ok() && !names->empty();
}

absl::StatusOr<std::optional<JobStorage::Origin>> JobDirectory::OpenLog(
    const JobShare& share, const std::optional<Origin>& checkpoint) {
  const absl::Duration begun = options_.clock->Now();
  Begin("replays its push log");
  const absl::Status others =
      CheckLogsOfOtherCounts(*options_.files, directory_.path(), share.job_id, share.map.servers());
  if (!others.ok()) return others;
  JobLog::Options options;
  options.files = options_.files;
  options.clock = options_.clock;
  options.directory = directory_.LogPath(share.server, share.map.servers());
  options.has_checkpoint = checkpoint.has_value();
  options.has_thread = options_.has_threads;
  options.draw_salt = options_.draw_salt;
  options.copier = copies_.get();
  if (copies_ != nullptr) {
    options.replace = [this](const LogIdentity& identity, uint64_t last_sequence,
                             const absl::StatusOr<LogEnd>& end) {
      return copies_->ReplaceLog(identity, last_sequence, end);
    };
  }
  options.log = options_.log;
  const int64_t shard_bytes = ShardWriter::LeastBytes(HeaderFor(/*checkpoint=*/0), OwnBlocks());
  options.checkpoint_bytes = std::max(2 * shard_bytes, kLongLogBytes);
  // Ledgers make a shard larger than `shard_bytes`.
  const int servers = options_.servers_on_disk > 0 ? options_.servers_on_disk : server_count_;
  options.reserve_bytes = 2 * shard_bytes * servers + kManifestBytes;
  absl::StatusOr<std::unique_ptr<JobLog>> log = JobLog::Open(options, share, store_);
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  // A process that ended before the blocks had values leaves a log without records.
  if (!log_->existed() || (!checkpoint.has_value() && log_->replayed() == 0)) return checkpoint;
  origin_.from_log = true;
  origin_.replayed = log_->replayed();
  options_.log(absl::StrFormat("server %d replayed %d changes from its push log in %.2f s",
                               share.server, log_->replayed(),
                               absl::ToDoubleSeconds(options_.clock->Now() - begun)));
  return std::optional<Origin>(origin_);
}

absl::StatusOr<std::optional<JobStorage::Origin>> JobDirectory::RestoreNewest(
    const JobShare& share) {
  const absl::Duration begun = options_.clock->Now();
  Begin("checks its newest checkpoint");
  Restore::Request request;
  request.directory = directory_.path();
  request.job_id = share.job_id;
  request.layout = &share.layout;
  request.blocks = &share.map;
  request.server_index = share.server;
  request.resumed_checkpoint = share.resumed_checkpoint;
  request.incarnation = share.incarnation;
  absl::StatusOr<std::unique_ptr<Restore>> restore = Restore::Open(options_.files, request);
  const bool skips = restore.ok() && !(*restore)->passed_over().empty();
  if (copies_ != nullptr && (skips || absl::IsDataLoss(restore.status()))) {
    const absl::StatusOr<bool> replaced =
        copies_->ReplaceDamagedCheckpoints(restore.ok() ? (*restore)->checkpoint() : 0);
    if (!replaced.ok()) return replaced.status();
    if (*replaced) restore = Restore::Open(options_.files, request);
  }
  if (absl::IsNotFound(restore.status())) return std::optional<Origin>();
  if (!restore.ok()) return restore.status();
  for (const std::string& reason : (*restore)->passed_over()) options_.log(reason);
  // The manifest may be here although the last sync failed. New changes are recorded on top of the
  // restored blocks, so a power failure must not replace these blocks with older ones.
  if (const absl::Status synced = directory_.Sync((*restore)->checkpoint()); !synced.ok()) {
    // Reports a disk error as UNAVAILABLE. It is not the worker's fault, and the worker should
    // retry.
    return absl::UnavailableError(synced.message());
  }
  Begin(absl::StrCat("reads checkpoint ", (*restore)->checkpoint()),
        static_cast<int64_t>((*restore)->blocks().size()));
  BlockBuffer buffer;
  for (size_t i = 0; i < (*restore)->blocks().size(); ++i) {
    if (absl::Status read = (*restore)->ReadBlock(i, &buffer); !read.ok()) return read;
    if (absl::Status taken = store_->snapshot().Restore(buffer.image()); !taken.ok()) return taken;
    if (options_.progress != nullptr) options_.progress->Done();
  }
  origin_.checkpoint = (*restore)->checkpoint();
  {
    MutexLock lock(&mutex_);
    committed_ = origin_.checkpoint;
    committed_changes_ = store_->CountChanges();
  }
  options_.log(absl::StrFormat("server %d restored %d blocks (%d MiB) from checkpoint %d in %.2f s",
                               share.server, store_->owned(), store_->state_bytes() >> 20,
                               origin_.checkpoint,
                               absl::ToDoubleSeconds(options_.clock->Now() - begun)));
  return std::optional<Origin>(origin_);
}

void JobDirectory::Describe(DurabilityStatus* status) {
  status->set_has_directory(true);
  status->set_restored_checkpoint(origin_.checkpoint);
  status->set_replayed(origin_.replayed);
  {
    MutexLock lock(&mutex_);
    status->set_checkpoint(committed_);
    status->set_trouble(trouble_);
  }
  if (copies_ != nullptr) copies_->Describe(status);
  // Comes last, so that an error of the log replaces an error of the checkpoint or backup in
  // `trouble`.
  if (log_ != nullptr) log_->Describe(status);
}

std::optional<JobDirectory::Unkept> JobDirectory::FindUnkept() {
  if (log_ != nullptr) return std::nullopt;
  Unkept unkept;
  unkept.changes = store_->CountChanges();
  {
    MutexLock lock(&mutex_);
    unkept.checkpoint = committed_;
    unkept.changes -= committed_changes_;
  }
  if (unkept.changes <= 0) return std::nullopt;
  const absl::StatusOr<Manifest> manifest = directory_.ReadManifest(unkept.checkpoint);
  if (manifest.ok() && manifest->coordinator().server_address_size() > 0) {
    unkept.coordinator = manifest->coordinator().server_address(0);
  }
  return unkept;
}

absl::StatusOr<ShardInfo> JobDirectory::WriteShard(uint64_t checkpoint) {
  // Refuses a delayed request for an older checkpoint. The coordinator does not wait for that shard
  // any more, and the shard would stay on disk for long.
  if (checkpoint < written_) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", checkpoint, " was abandoned for checkpoint ", written_));
  }
  absl::StatusOr<ShardInfo> info = TryWriteShard(checkpoint);
  if (info.ok() && copies_ != nullptr) {
    if (absl::Status kept = copies_->KeepShard(checkpoint); !kept.ok()) info = kept;
  }
  if (info.ok()) written_ = checkpoint;
  Note(info.status());
  return info;
}

absl::StatusOr<ShardInfo> JobDirectory::TryWriteShard(uint64_t checkpoint) {
  const absl::Duration begun = options_.clock->Now();
  if (absl::Status removed = directory_.RemoveFailed(checkpoint, server_index_, server_count_);
      !removed.ok()) {
    return removed;
  }
  std::vector<ShardBlock> blocks = OwnBlocks();
  const ShardHeader header = HeaderFor(checkpoint);
  if (absl::Status fits = CheckRoom(checkpoint, ShardWriter::LeastBytes(header, blocks));
      !fits.ok()) {
    return fits;
  }
  if (absl::Status made = directory_.PrepareCheckpoint(checkpoint); !made.ok()) return made;
  absl::StatusOr<std::unique_ptr<ShardWriter>> writer = ShardWriter::Create(
      options_.files, directory_.ShardPath(checkpoint, server_index_, server_count_), header,
      std::move(blocks));
  if (!writer.ok()) return writer.status();
  if (copy_ == nullptr) copy_ = store_->snapshot().MakeCopy();
  // Rotates the log before the first block is copied, so that the copies contain everything that
  // was logged before.
  if (log_ != nullptr) covered_[checkpoint] = log_->Rotate();
  absl::Duration longest_pause;
  int64_t changes = 0;
  uint64_t nonfinite = 0;
  for (size_t index = 0; index < store_->owned(); ++index) {
    if (abandoned_) return absl::CancelledError("the server stops");
    const absl::StatusOr<absl::Duration> pause =
        store_->snapshot().Capture(index, *options_.clock, copy_.get());
    if (!pause.ok()) return absl::FailedPreconditionError(pause.status().message());
    longest_pause = std::max(longest_pause, *pause);
    changes += copy_->image().version;
    if (!copy_->IsFinite()) ++nonfinite;
    if (absl::Status written = (*writer)->Append(copy_->image()); !written.ok()) return written;
  }
  ReachFailpoint(Failpoint::kShardWritten);
  // Flushes the log before the shard is finished, so that the shard contains no push that the log
  // lacks. Otherwise one restart could report such a push as lost, and a later restart could
  // restore it from the shard.
  if (log_ != nullptr) {
    if (absl::Status logged = log_->Flush(); !logged.ok()) return logged;
  }
  absl::StatusOr<ShardInfo> info = (*writer)->Finish();
  if (!info.ok()) return info.status();
  written_changes_ = changes;
  info->set_longest_pause_seconds(absl::ToDoubleSeconds(longest_pause));
  info->set_nonfinite_blocks(nonfinite);
  info->set_seconds(absl::ToDoubleSeconds(options_.clock->Now() - begun));
  return info;
}

ShardHeader JobDirectory::HeaderFor(uint64_t checkpoint) const {
  ShardHeader header;
  header.job_id = job_id_;
  header.checkpoint = checkpoint;
  header.server_index = server_index_;
  header.server_count = server_count_;
  return header;
}

std::vector<ShardBlock> JobDirectory::OwnBlocks() const {
  std::vector<ShardBlock> blocks;
  for (size_t index = 0; index < store_->owned(); ++index) {
    blocks.push_back({store_->range(index), store_->slots(index)});
  }
  return blocks;
}

absl::Status JobDirectory::CheckRoom(uint64_t checkpoint, int64_t bytes) const {
  const absl::StatusOr<int64_t> free = options_.files->FreeBytes(directory_.path());
  // If the free space is unknown, the write will fail if there is too little.
  if (!free.ok() || *free >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no room in ", directory_.path(), " for this server's shard of checkpoint ",
                   checkpoint, ": it needs ", bytes, " bytes, and ", *free,
                   " are free; free some space, or keep fewer checkpoints (durability.keep)"));
}

absl::Status JobDirectory::Commit(const CommitCheckpointRequest& request) {
  // Refuses a shard from before a rollback: this process has reported the updates in that shard to
  // the workers as lost.
  if (!goes_on_from_log() && request.checkpoint() > origin_.checkpoint &&
      request.checkpoint() != written_) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server has been restarted since it wrote its shard of checkpoint ",
                     request.checkpoint(), ", and restored checkpoint ", origin_.checkpoint,
                     "; the next checkpoint will be complete"));
  }
  const absl::Status status = TryCommit(request);
  Note(status);
  return status;
}

absl::Status JobDirectory::TryCommit(const CommitCheckpointRequest& request) {
  const uint64_t checkpoint = request.checkpoint();
  const std::string shard = directory_.ShardPath(checkpoint, server_index_, server_count_);
  if (absl::IsNotFound(options_.files->OpenForReading(shard).status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(shard, " was removed in favor of a later checkpoint"));
  }
  if (checkpoint != written_) {
    // An earlier process wrote the shard. This one restored another checkpoint or the log, and has
    // not read the shard.
    const absl::StatusOr<Manifest> manifest = DecodeManifest(request.manifest());
    if (!manifest.ok()) return manifest.status();
    if (!directory_.HasShard(*manifest, server_index_)) {
      return absl::FailedPreconditionError(
          absl::StrCat(shard, " is damaged; the next checkpoint will be complete"));
    }
  }
  if (absl::Status kept = directory_.WriteManifest(checkpoint, request.manifest()); !kept.ok()) {
    return kept;
  }
  if (copies_ != nullptr) {
    if (absl::Status kept = copies_->KeepCheckpoint(checkpoint); !kept.ok()) return kept;
  }
  {
    MutexLock lock(&mutex_);
    committed_ = std::max(committed_, checkpoint);
    if (checkpoint == written_) committed_changes_ = written_changes_;
  }
  if (!request.everywhere()) return absl::OkStatus();
  absl::Status pruned = directory_.Prune(server_index_, server_count_, checkpoint,
                                         {request.keep().begin(), request.keep().end()});
  if (pruned.ok() && copies_ != nullptr) copies_->Prune();
  const auto covered = covered_.find(checkpoint);
  if (!pruned.ok() || covered == covered_.end()) return pruned;
  const absl::Status dropped = log_->DropThrough(covered->second);
  covered_.erase(covered_.begin(), std::next(covered));
  return dropped;
}

void JobDirectory::Abandon() {
  abandoned_ = true;
  if (copies_ != nullptr) copies_->Abandon();
}

void JobDirectory::Note(const absl::Status& status) {
  MutexLock lock(&mutex_);
  trouble_ = absl::IsCancelled(status) ? "" : std::string(status.message());
}

}  // namespace torchps
