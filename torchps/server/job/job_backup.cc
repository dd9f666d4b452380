#include "torchps/server/job/job_backup.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/server/push_log/log_reader.h"
#include "torchps/server/push_log/log_segment.h"

namespace torchps {
namespace {

// Maps errors that a retry may cure to UNAVAILABLE, because they are not the worker's fault.
absl::Status MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
      return absl::UnavailableError(status.message());
    default:
      return status;
  }
}

}  // namespace

JobBackup::JobBackup(const CheckpointDirectory* directory, Options options)
    : directory_(*directory), options_(std::move(options)) {}

BackupFetch::Options JobBackup::FetchOptions() const {
  BackupFetch::Options options;
  options.files = &directory_.files();
  options.peer = options_.peer.get();
  options.directory = directory_.path();
  options.job_id = options_.job_id;
  options.server_index = options_.server_index;
  if (options_.progress != nullptr) {
    options.begin = [this](const std::string& what, int64_t pieces) {
      options_.progress->Begin(what, pieces);
    };
    options.done = [this] { options_.progress->Done(); };
  }
  return options;
}

absl::StatusOr<bool> JobBackup::ReplaceFile(const std::string& path,
                                            std::optional<uint32_t> crc32c) {
  const absl::Status replaced = BackupFetch(FetchOptions()).Replace(GetName(path), crc32c);
  // Without an intact copy, an older checkpoint is the best. Other errors may pass.
  const bool has_none = absl::IsNotFound(replaced) || absl::IsDataLoss(replaced);
  if (!replaced.ok() && !has_none) return absl::UnavailableError(replaced.message());
  options_.log(replaced.ok() ? absl::StrCat(path, " was damaged, and is replaced by the copy on ",
                                            options_.peer->name())
                             : std::string(replaced.message()));
  return replaced.ok();
}

absl::StatusOr<bool> JobBackup::ReplaceDamagedCheckpoints(uint64_t restored) {
  const absl::StatusOr<std::vector<uint64_t>> complete = directory_.Complete();
  if (!complete.ok()) return complete.status();
  bool any = false;
  for (const uint64_t checkpoint : *complete) {
    if (checkpoint <= restored) continue;
    absl::StatusOr<Manifest> manifest = directory_.ReadManifest(checkpoint);
    if (absl::IsDataLoss(manifest.status())) {
      // The manifest contains its checksum.
      const auto replaced = ReplaceFile(directory_.ManifestPath(checkpoint), std::nullopt);
      if (!replaced.ok()) return replaced;
      manifest = directory_.ReadManifest(checkpoint);
      any = any || manifest.ok();
    }
    if (!manifest.ok() || manifest->job_id() != options_.job_id ||
        manifest->server_count() != options_.server_count) {
      continue;
    }
    if (directory_.HasShard(*manifest, options_.server_index)) continue;
    const absl::StatusOr<bool> replaced =
        ReplaceFile(directory_.ShardPath(checkpoint, options_.server_index, options_.server_count),
                    manifest->shard(options_.server_index).crc32c());
    if (!replaced.ok()) return replaced;
    any = any || *replaced;
  }
  return any;
}

absl::StatusOr<bool> JobBackup::ReplaceLog(const LogIdentity& identity, uint64_t last_sequence,
                                           const absl::StatusOr<LogEnd>& end) {
  const std::string log = directory_.LogPath(options_.server_index, options_.server_count);
  // By name of the segment.
  using Sizes = std::map<std::string, int64_t>;
  const auto may_be_better = [&](const Sizes& copies) -> absl::StatusOr<bool> {
    const absl::StatusOr<std::vector<std::string>> names = directory_.files().List(log);
    if (!names.ok()) return names.status();
    if (copies.empty() || names->empty()) return !copies.empty();
    // A crash may have cut the tail. But a copy has only bytes that were synced here, so a longer
    // one shows that the tail is damaged.
    if (end.ok()) {
      // There is no segment if the tail is the header of the first one.
      const std::string last =
          end->segments.empty() ? "" : LogSegmentName(end->segments.back().number);
      const int64_t bytes = end->durable_bytes + static_cast<int64_t>(end->tail.size());
      const auto& [name, copied] = *copies.rbegin();
      const auto empty = static_cast<int64_t>(kLogSegmentHeaderBytes);
      return name > last ? copied > empty : name == last && copied > bytes;
    }
    // A copy that is not complete yet may lack acknowledged records. The next segment's header
    // tells how long a segment must be, so only the last one is compared.
    const std::string& last = names->back();
    for (const std::string& name : *names) {
      if (name != last && copies.count(name) == 0) return false;
    }
    const auto own = directory_.files().OpenForReading(absl::StrCat(log, "/", last));
    if (!own.ok()) return own.status();
    const auto copy = copies.find(last);
    const int64_t copied = copy == copies.end() ? 0 : copy->second;
    return copied + kCopyPieceBytes >= (*own)->size();
  };
  const auto is_better = [&](const std::string& path) -> absl::StatusOr<bool> {
    const absl::StatusOr<LogEnd> copy =
        ReadPushLog(directory_.files(), path, identity,
                    [](const LogRecord&, const FramePayload&) { return absl::OkStatus(); });
    if (absl::IsDataLoss(copy.status())) return false;
    if (!copy.ok()) return copy.status();
    // A damaged log may have no readable record.
    return end.ok() ? copy->last_sequence > last_sequence : copy->last_sequence >= last_sequence;
  };
  absl::StatusOr<bool> replaced =
      BackupFetch(FetchOptions()).ReplaceFolder(LogFolder(), may_be_better, is_better);
  if (!replaced.ok()) replaced = MayPass(replaced.status());
  if (replaced.ok() && *replaced) {
    options_.log(absl::StrCat("the push log in ", log,
                              " was damaged, and is replaced by the copy on ",
                              options_.peer->name()));
  }
  // The tail is probably only cut.
  if (end.ok() && !replaced.ok() && !absl::IsUnavailable(replaced.status())) {
    options_.log(std::string(replaced.status().message()));
    return false;
  }
  return replaced;
}

absl::Status JobBackup::FetchIfLost(bool is_lost) {
  BackupFetch fetch(FetchOptions());
  if (absl::Status status = fetch.FinishReplacement(LogFolder()); !status.ok()) {
    return MayPass(status);
  }
  if (!is_lost && !fetch.WasBrokenOff()) return absl::OkStatus();
  const absl::Duration begun = options_.clock->Now();
  const absl::StatusOr<int64_t> fetched = fetch.Run();
  if (!fetched.ok()) return MayPass(fetched.status());
  if (*fetched == 0) return absl::OkStatus();
  options_.log(absl::StrFormat("server %d restored its files (%d MiB) from %s in %.2f s",
                               options_.server_index, *fetched >> 20, options_.peer->name(),
                               absl::ToDoubleSeconds(options_.clock->Now() - begun)));
  return absl::OkStatus();
}

std::string JobBackup::GetName(const std::string& path) const {
  return path.substr(directory_.path().size() + 1);
}

std::string JobBackup::ShardFile(uint64_t checkpoint) const {
  return GetName(directory_.ShardPath(checkpoint, options_.server_index, options_.server_count));
}

std::string JobBackup::LogFolder() const {
  return GetName(directory_.LogPath(options_.server_index, options_.server_count));
}

std::vector<std::string> JobBackup::FilesBeside() const {
  std::vector<std::string> files;
  // Server 0 runs the coordinator.
  if (options_.server_index != 0) return files;
  const absl::StatusOr<std::vector<std::string>> names = directory_.files().List(directory_.path());
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (name == GetName(directory_.CoordinatorStatePath()) ||
        absl::EndsWith(name, ".safetensors")) {
      files.push_back(name);
    }
  }
  return files;
}

BackupReplicator::Kept JobBackup::OwnFiles() const {
  BackupReplicator::Kept own;
  const absl::StatusOr<std::vector<std::string>> names = directory_.files().List(directory_.path());
  if (!names.ok()) return own;
  const std::string prefix = absl::StrCat("server-", options_.server_index, "-of-");
  // The newest checkpoint comes first, because a recovery begins with it.
  for (auto name = names->rbegin(); name != names->rend(); ++name) {
    if (!absl::StartsWith(*name, "checkpoint-")) continue;
    const absl::StatusOr<std::vector<std::string>> within =
        directory_.files().List(absl::StrCat(directory_.path(), "/", *name));
    if (!within.ok()) continue;
    std::vector<std::string> shards;
    std::string manifest;
    for (const std::string& file : *within) {
      const std::string path = absl::StrCat(*name, "/", file);
      if (absl::StartsWith(file, prefix) && absl::EndsWith(file, ".safetensors")) {
        shards.push_back(path);
      } else if (absl::EndsWith(file, ".json")) {
        manifest = path;
      }
    }
    if (shards.empty()) continue;
    // The manifest comes last, because it makes the checkpoint complete.
    std::vector<std::string>& files = manifest.empty() ? own.others : own.complete;
    files.insert(files.end(), shards.begin(), shards.end());
    if (!manifest.empty()) files.push_back(manifest);
  }
  return own;
}

void JobBackup::Start(JobLog* log) {
  BackupReplicator::Options options;
  options.mirror.files = &directory_.files();
  options.mirror.peer = options_.peer.get();
  options.mirror.directory = directory_.path();
  options.mirror.job_id = options_.job_id;
  options.mirror.server_index = options_.server_index;
  log_ = log;
  if (log != nullptr) options.mirror.log = this;
  options.clock = options_.clock;
  options.tell = options_.log;
  options.has_thread = options_.has_thread;
  BackupReplicator::Kept kept = OwnFiles();
  MutexLock lock(&mutex_);
  for (const std::string& file : FilesBeside()) {
    kept.others.push_back(file);
    extra_files_.insert(file);
  }
  sender_ = std::make_unique<BackupReplicator>(std::move(options), kept);
  started_ = sender_.get();
}

GrowingLog JobBackup::GetExtent() const {
  const std::string folder = LogFolder();
  const PushLog::Extent extent = log_->extent();
  GrowingLog growing;
  for (const PushLog::Extent::Segment& segment : extent.segments) {
    growing.files.push_back(
        {absl::StrCat(folder, "/", LogSegmentName(segment.number)), segment.bytes});
  }
  growing.position = extent.sequence;
  return growing;
}

void JobBackup::Wake() {
  if (BackupReplicator* const sender = started_; sender != nullptr) sender->Wake();
}

absl::Status JobBackup::KeepShard(uint64_t checkpoint) {
  return sender_->Keep({ShardFile(checkpoint)}, /*complete=*/false, BackupMirror::Version::kNew);
}

absl::Status JobBackup::KeepCheckpoint(uint64_t checkpoint) {
  // The shard comes before the manifest.
  return sender_->Keep({ShardFile(checkpoint), GetName(directory_.ManifestPath(checkpoint))},
                       /*complete=*/true, BackupMirror::Version::kSame);
}

void JobBackup::Prune() {
  BackupReplicator::Kept own = OwnFiles();
  std::vector<std::string> files = std::move(own.complete);
  files.insert(files.end(), own.others.begin(), own.others.end());
  // Under the lock, so that a file sent in the meantime is not removed.
  MutexLock lock(&mutex_);
  files.insert(files.end(), extra_files_.begin(), extra_files_.end());
  sender_->KeepOnly(std::move(files));
}

void JobBackup::Send(const std::string& file) {
  MutexLock lock(&mutex_);
  extra_files_.insert(file);
  if (BackupReplicator* const sender = started_; sender != nullptr) {
    sender->Send(file, /*complete=*/false, BackupMirror::Version::kNew);
  }
}

absl::StatusOr<bool> JobBackup::Step() {
  BackupReplicator* const sender = started_;
  return sender != nullptr ? sender->Step() : false;
}

void JobBackup::Describe(DurabilityStatus* status) const {
  if (BackupReplicator* const sender = started_; sender != nullptr) sender->Describe(status);
}

void JobBackup::Abandon() {
  if (BackupReplicator* const sender = started_; sender != nullptr) sender->Abandon();
}

void JobBackup::Stop() {
  if (sender_ != nullptr) sender_->Stop();
}

}  // namespace torchps
