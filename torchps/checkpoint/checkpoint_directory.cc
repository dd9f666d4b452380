#include "torchps/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/checkpoint/safetensors_file.h"

namespace torchps {
namespace {

constexpr absl::string_view kCheckpointPrefix = "checkpoint-";
constexpr size_t kCheckpointDigits = 12;
constexpr char kManifestName[] = "MANIFEST.json";

// Returns the checkpoint's number, or 0 if `name` is not a checkpoint directory name.
uint64_t CheckpointNumber(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kCheckpointPrefix)) return 0;
  uint64_t number = 0;
  const bool strict = name.size() >= kCheckpointDigits &&
                      absl::c_all_of(name, absl::ascii_isdigit) &&
                      (name.size() == kCheckpointDigits || name[0] != '0');
  return strict && absl::SimpleAtoi(name, &number) ? number : 0;
}

// Returns the server index in a shard's file name, including temporary files; -1 if `name` is not a
// shard.
int ShardServer(absl::string_view name) {
  absl::ConsumeSuffix(&name, ".tmp");
  if (!absl::ConsumePrefix(&name, "server-") || !absl::ConsumeSuffix(&name, ".safetensors")) {
    return -1;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(name, "-of-");
  int index = -1;
  int count = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &index) ||
      !absl::SimpleAtoi(parts[1], &count) || index < 0 || index >= count) {
    return -1;
  }
  return index;
}

// Ignores NOT_FOUND, because another server may remove the same file.
absl::Status UnlessNotFound(absl::Status status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status In(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// True if the caller may fall back to an older checkpoint. False for errors that the user can fix,
// such as missing permissions.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status);
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(FileSystem* files, std::string path)
    : files_(files), path_(std::move(path)) {}

std::string CheckpointDirectory::ShardName(int server_index, int server_count) {
  return absl::StrCat("server-", server_index, "-of-", server_count, ".safetensors");
}

std::string CheckpointDirectory::ServerLockPath(int server_index) const {
  return absl::StrCat(path_, "/server-", server_index, ".lock");
}

std::string CheckpointDirectory::CoordinatorLockPath() const {
  return absl::StrCat(path_, "/coordinator.lock");
}

std::string CheckpointDirectory::CoordinatorStatePath() const {
  return absl::StrCat(path_, "/coordinator.state");
}

std::string CheckpointDirectory::CheckpointPath(uint64_t checkpoint) const {
  return absl::StrFormat("%s/%s%0*d", path_, kCheckpointPrefix, kCheckpointDigits, checkpoint);
}

std::string CheckpointDirectory::ManifestPath(uint64_t checkpoint) const {
  return absl::StrCat(CheckpointPath(checkpoint), "/", kManifestName);
}

std::string CheckpointDirectory::ShardPath(uint64_t checkpoint, int server_index,
                                           int server_count) const {
  return absl::StrCat(CheckpointPath(checkpoint), "/", ShardName(server_index, server_count));
}

std::string CheckpointDirectory::LogPath(int server_index, int server_count) const {
  return absl::StrCat(path_, "/log-", server_index, "-of-", server_count);
}

absl::Status CheckpointDirectory::Prepare() const { return files_->CreateDirectories(path_); }

absl::Status CheckpointDirectory::PrepareCheckpoint(uint64_t checkpoint) const {
  const std::string path = CheckpointPath(checkpoint);
  if (absl::Status status = files_->CreateDirectories(path); !status.ok()) return status;
  const absl::StatusOr<std::vector<std::string>> names = files_->List(path);
  if (!names.ok()) return names.status();
  if (absl::c_linear_search(*names, kManifestName)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is a complete checkpoint already; use a higher number"));
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::WriteManifest(uint64_t checkpoint, absl::string_view text) const {
  const std::string path = ManifestPath(checkpoint);
  const absl::StatusOr<Manifest> manifest = DecodeManifest(text);
  if (!manifest.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", manifest.status().message()));
  }
  if (manifest->checkpoint() != checkpoint) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be the manifest of checkpoint ", manifest->checkpoint()));
  }
  absl::StatusOr<std::string> present = ReadWholeFile(*files_, path, kMaxManifestBytes);
  if (present.ok()) {
    // An earlier call may have written the manifest and then failed to sync the directory. Without
    // a sync, a power failure could remove the manifest.
    if (*present == text) return files_->SyncDirectory(CheckpointPath(checkpoint));
    return absl::AlreadyExistsError(absl::StrCat(path, " exists with different contents"));
  }
  if (!absl::IsNotFound(present.status())) return present.status();
  absl::Status status = files_->CreateDirectories(CheckpointPath(checkpoint));
  if (status.ok()) status = WriteFileAtomically(*files_, path, text);
  if (!status.ok()) return status;
  present = ReadWholeFile(*files_, path, kMaxManifestBytes);
  if (!present.ok()) return present.status();
  if (*present == text) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " does not contain the bytes that were written"));
}

bool CheckpointDirectory::HasShard(const Manifest& manifest, int server_index) const {
  const absl::StatusOr<std::unique_ptr<SafetensorsReader>> shard = SafetensorsReader::Open(
      files_, ShardPath(manifest.checkpoint(), server_index, manifest.server_count()));
  if (!shard.ok()) return false;
  const absl::StatusOr<uint32_t> crc = (*shard)->Checksum();
  return crc.ok() && *crc == manifest.shard(server_index).crc32c();
}

absl::Status CheckpointDirectory::Sync(uint64_t checkpoint) const {
  const absl::Status status = files_->SyncDirectory(CheckpointPath(checkpoint));
  return status.ok() ? files_->SyncDirectory(path_) : status;
}

absl::StatusOr<std::vector<uint64_t>> CheckpointDirectory::Numbers() const {
  const absl::StatusOr<std::vector<std::string>> names = files_->List(path_);
  if (absl::IsNotFound(names.status())) return std::vector<uint64_t>();
  if (!names.ok()) return names.status();
  std::vector<uint64_t> numbers;
  for (const std::string& name : *names) {
    if (const uint64_t number = CheckpointNumber(name); number != 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

absl::StatusOr<std::vector<uint64_t>> CheckpointDirectory::Complete() const {
  const absl::StatusOr<std::vector<uint64_t>> numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  std::vector<uint64_t> complete;
  for (const uint64_t number : *numbers) {
    const absl::StatusOr<std::vector<std::string>> names = files_->List(CheckpointPath(number));
    // Another server may be removing this checkpoint.
    if (absl::IsNotFound(names.status())) continue;
    if (!names.ok()) return names.status();
    if (absl::c_linear_search(*names, kManifestName)) complete.push_back(number);
  }
  return complete;
}

absl::StatusOr<uint64_t> CheckpointDirectory::HighestNumber() const {
  const absl::StatusOr<std::vector<uint64_t>> numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  return numbers->empty() ? 0 : numbers->back();
}

absl::StatusOr<Manifest> CheckpointDirectory::ReadManifest(uint64_t checkpoint) const {
  const std::string path = ManifestPath(checkpoint);
  const absl::StatusOr<std::string> text = ReadWholeFile(*files_, path, kMaxManifestBytes);
  if (!text.ok()) return text.status();
  absl::StatusOr<Manifest> manifest = DecodeManifest(*text);
  if (!manifest.ok()) return In(path, manifest.status());
  if (manifest->checkpoint() != checkpoint) {
    return absl::DataLossError(
        absl::StrCat(path, " is the manifest of checkpoint ", manifest->checkpoint()));
  }
  return manifest;
}

absl::StatusOr<Manifest> CheckpointDirectory::Newest(
    const std::function<absl::Status(const Manifest&)>& usable,
    std::vector<std::string>* passed_over) const {
  const absl::StatusOr<std::vector<uint64_t>> numbers = Complete();
  if (!numbers.ok()) return numbers.status();
  if (numbers->empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", path_));
  }
  for (auto number = numbers->rbegin(); number != numbers->rend(); ++number) {
    absl::StatusOr<Manifest> manifest = ReadManifest(*number);
    absl::Status status = manifest.status();
    if (status.ok()) status = usable(*manifest);
    if (status.ok()) return manifest;
    if (!IsDamage(status)) return status;
    passed_over->push_back(
        absl::StrCat("checkpoint ", *number, " cannot be loaded: ", status.message()));
  }
  return absl::DataLossError(absl::StrCat(
      "no checkpoint in ", path_, " can be loaded (", absl::StrJoin(*passed_over, "; "),
      "); restore an undamaged copy, or start anew in another directory"));
}

absl::Status CheckpointDirectory::CheckPresentShards(const Manifest& manifest) const {
  for (const ShardInfo& shard : manifest.shard()) {
    const std::string path = absl::StrCat(CheckpointPath(manifest.checkpoint()), "/", shard.file());
    const auto file = files_->OpenForReading(path);
    // The shards of other servers may be in separate directories.
    if (absl::IsNotFound(file.status())) continue;
    if (!file.ok()) return file.status();
    if (static_cast<uint64_t>((*file)->size()) != shard.bytes()) {
      return absl::DataLossError(absl::StrCat(path, " has ", (*file)->size(),
                                              " bytes; the manifest says ", shard.bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::Prune(int server_index, int server_count, uint64_t newest,
                                        const std::vector<uint64_t>& keep) const {
  const absl::StatusOr<Manifest> manifest = ReadManifest(newest);
  if (!manifest.ok()) return manifest.status();
  if (absl::Status status = CheckPresentShards(*manifest); !status.ok()) return status;
  const absl::StatusOr<std::vector<uint64_t>> numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  for (const uint64_t number : *numbers) {
    if (number >= newest || absl::c_linear_search(keep, number)) continue;
    if (absl::Status status = PruneOne(number, server_index, server_count); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::RemoveFailed(uint64_t checkpoint, int server_index,
                                               int server_count) const {
  const absl::StatusOr<std::vector<uint64_t>> numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  const absl::StatusOr<std::vector<uint64_t>> complete = Complete();
  if (!complete.ok()) return complete.status();
  for (const uint64_t number : *numbers) {
    if (number == checkpoint || absl::c_linear_search(*complete, number)) continue;
    if (absl::Status status = PruneOne(number, server_index, server_count); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::PruneOne(uint64_t checkpoint, int server_index,
                                           int server_count) const {
  const std::string path = CheckpointPath(checkpoint);
  const absl::StatusOr<std::vector<std::string>> names = files_->List(path);
  if (!names.ok()) return UnlessNotFound(names.status());
  // Remove the manifest first, so that a checkpoint without shards never looks complete.
  if (absl::c_linear_search(*names, kManifestName)) {
    if (absl::Status status = RemoveManifest(checkpoint); !status.ok()) return status;
  }
  for (const std::string& name : *names) {
    const int server = ShardServer(name);
    // If an earlier, larger cluster wrote the checkpoint, each server removes a part of the shards.
    const bool own = server >= 0 && server % server_count == server_index;
    if (!own && name != TemporaryPath(kManifestName)) continue;
    if (absl::Status status = UnlessNotFound(files_->RemoveFile(absl::StrCat(path, "/", name)));
        !status.ok()) {
      return status;
    }
  }
  const absl::Status status = files_->RemoveDirectory(path);
  // FAILED_PRECONDITION means that the directory still contains files of other servers.
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : UnlessNotFound(status);
}

absl::Status CheckpointDirectory::RemoveManifest(uint64_t checkpoint) const {
  const absl::Status status = UnlessNotFound(files_->RemoveFile(ManifestPath(checkpoint)));
  return status.ok() ? UnlessNotFound(files_->SyncDirectory(CheckpointPath(checkpoint))) : status;
}

absl::Status CheckpointDirectory::RemoveShardsAbove(uint64_t checkpoint,
                                                    const std::vector<uint64_t>& except,
                                                    int server_index, int server_count) const {
  const absl::StatusOr<std::vector<uint64_t>> numbers = Numbers();
  if (!numbers.ok()) return numbers.status();
  for (const uint64_t number : *numbers) {
    if (number <= checkpoint || absl::c_linear_search(except, number)) continue;
    absl::Status status =
        UnlessNotFound(files_->RemoveFile(ShardPath(number, server_index, server_count)));
    if (status.ok()) status = UnlessNotFound(files_->SyncDirectory(CheckpointPath(number)));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace torchps
