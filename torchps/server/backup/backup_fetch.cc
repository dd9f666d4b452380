#include "torchps/server/backup/backup_fetch.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/storage/crc32c.h"

namespace torchps {
namespace {

// Maximum size of all copies. With this limit, sums of sizes fit into 64 bits.
constexpr int64_t kMaxBytes = int64_t{1} << 60;

int64_t GetPieces(const CopiedFile& file) {
  return (static_cast<int64_t>(file.bytes()) + kCopyPieceBytes - 1) / kCopyPieceBytes;
}

}  // namespace

BackupFetch::BackupFetch(Options options)
    : options_(std::move(options)),
      need_(absl::StrCat("this server's directory, ", options_.directory,
                         ", is empty, and its files")) {}

std::string BackupFetch::MarkPath() const {
  return absl::StrCat(options_.directory, "/server-", options_.server_index, ".fetching");
}

bool BackupFetch::WasBrokenOff() const { return options_.files->OpenForReading(MarkPath()).ok(); }

absl::Status BackupFetch::OfPeer(const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat(need_, " must come from ", options_.peer->name(),
                                                  ": ", status.message()));
}

absl::StatusOr<ListCopiesReply> BackupFetch::List() {
  options_.begin(absl::StrCat("asks ", options_.peer->name(), " for copies of its files"), 0);
  ListCopiesRequest request;
  request.set_job_id(options_.job_id);
  request.set_server_index(options_.server_index);
  absl::StatusOr<ListCopiesReply> list = options_.peer->List(request);
  if (!list.ok()) return OfPeer(list.status());
  int64_t left = kMaxBytes;
  for (const CopiedFile& file : list->file()) {
    if (absl::Status named = CheckBackupName(file.file()); !named.ok()) return OfPeer(named);
    if (file.bytes() > static_cast<uint64_t>(left)) {
      return OfPeer(absl::InvalidArgumentError(absl::StrCat(
          "it lists ", file.file(), " with ", file.bytes(), " bytes, more than any disk holds")));
    }
    left -= static_cast<int64_t>(file.bytes());
  }
  if (!options_.with_coordinator) {
    auto* const files = list->mutable_file();
    files->erase(
        std::remove_if(files->begin(), files->end(),
                       [](const CopiedFile& file) { return !absl::StrContains(file.file(), '/'); }),
        files->end());
  }
  return list;
}

absl::Status BackupFetch::Replace(const std::string& file, std::optional<uint32_t> crc32c) {
  const std::string path = absl::StrCat(options_.directory, "/", file);
  need_ = absl::StrCat(path, " is damaged, and its copy");
  const absl::StatusOr<ListCopiesReply> list = List();
  if (!list.ok()) return list.status();
  for (const CopiedFile& copy : list->file()) {
    if (copy.file() != file) continue;
    options_.begin(absl::StrCat("fetches ", file, " from ", options_.peer->name()),
                   GetPieces(copy));
    return Fetch(copy, options_.directory, crc32c);
  }
  return OfPeer(absl::NotFoundError("it has none"));
}

absl::StatusOr<int64_t> BackupFetch::Run() {
  const absl::StatusOr<ListCopiesReply> list = List();
  if (!list.ok()) return list.status();
  if (list->file().empty()) return 0;
  int64_t pieces = 0;
  int64_t bytes = 0;
  for (const CopiedFile& file : list->file()) {
    if (file.job_id() != list->file(0).job_id()) {
      return OfPeer(absl::FailedPreconditionError(
          absl::StrCat("it has copies of jobs ", list->file(0).job_id(), " and ", file.job_id(),
                       "; move away the folder copies-of-JOB-", options_.server_index,
                       " of the job that should not continue")));
    }
    pieces += GetPieces(file);
    bytes += static_cast<int64_t>(file.bytes());
  }
  options_.begin(absl::StrCat("fetches its files from ", options_.peer->name()), pieces);
  if (absl::Status made = options_.files->CreateDirectories(options_.directory); !made.ok()) {
    return made;
  }
  if (absl::Status marked = WriteFileAtomically(*options_.files, MarkPath(), "\n"); !marked.ok()) {
    return marked;
  }
  for (const CopiedFile& file : list->file()) {
    const absl::Status fetched = Fetch(file, options_.directory, std::nullopt);
    if (!fetched.ok()) return fetched;
  }
  absl::Status finished = options_.files->RemoveFile(MarkPath());
  if (finished.ok()) finished = options_.files->SyncDirectory(options_.directory);
  if (!finished.ok()) return finished;
  return bytes;
}

std::string BackupFetch::Collected() const {
  return absl::StrCat(options_.directory, "/server-", options_.server_index, ".fetched");
}

std::string BackupFetch::ReadyPath() const { return absl::StrCat(Collected(), "/ready"); }

absl::StatusOr<bool> BackupFetch::ReplaceFolder(const std::string& folder,
                                                MayBeBetter may_be_better, IsBetter is_better) {
  need_ = absl::StrCat(options_.directory, "/", folder, " is damaged, and its copy");
  const absl::StatusOr<ListCopiesReply> list = List();
  if (!list.ok()) return list.status();
  std::vector<CopiedFile> copies;
  std::map<std::string, int64_t> sizes;
  for (const CopiedFile& file : list->file()) {
    if (!absl::StartsWith(file.file(), folder + "/")) continue;
    copies.push_back(file);
    sizes[file.file().substr(folder.size() + 1)] = static_cast<int64_t>(file.bytes());
  }
  absl::StatusOr<bool> better = may_be_better(sizes);
  if (!better.ok() || !*better) return better;
  const std::string fetched = absl::StrCat(Collected(), "/", folder);
  absl::Status status = RemoveFiles(fetched, {});
  for (const CopiedFile& file : copies) {
    if (status.ok()) status = Fetch(file, Collected(), std::nullopt);
  }
  if (status.ok()) {
    better = is_better(fetched);
    status = better.status();
  }
  if (!status.ok() || !*better) {
    RemoveFiles(fetched, {}).IgnoreError();  // leftover files only take space
    if (!status.ok()) return status;
    return false;
  }
  std::string names;
  for (const auto& [name, bytes] : sizes) absl::StrAppend(&names, name, "\n");
  status = WriteFileAtomically(*options_.files, ReadyPath(), names);
  if (status.ok()) status = FinishReplacement(folder);
  if (!status.ok()) return status;
  return true;
}

absl::Status BackupFetch::FinishReplacement(const std::string& folder) {
  constexpr int64_t kMaxListBytes = int64_t{64} << 20;
  const absl::StatusOr<std::string> ready =
      ReadWholeFile(*options_.files, ReadyPath(), kMaxListBytes);
  if (absl::IsNotFound(ready.status())) return absl::OkStatus();
  if (!ready.ok()) return ready.status();
  const std::set<std::string> names = absl::StrSplit(*ready, '\n', absl::SkipEmpty());
  const std::string damaged = absl::StrCat(options_.directory, "/", folder);
  absl::Status status = RemoveFiles(damaged, names);
  for (const std::string& name : names) {
    if (!status.ok()) return status;
    status = options_.files->Rename(absl::StrCat(Collected(), "/", folder, "/", name),
                                    absl::StrCat(damaged, "/", name));
    if (absl::IsNotFound(status)) status = absl::OkStatus();  // renamed before the crash
  }
  if (status.ok()) status = options_.files->SyncDirectory(damaged);
  if (status.ok()) status = options_.files->RemoveFile(ReadyPath());
  return status.ok() ? options_.files->SyncDirectory(Collected()) : status;
}

absl::Status BackupFetch::RemoveFiles(const std::string& directory,
                                      const std::set<std::string>& kept) {
  const absl::StatusOr<std::vector<std::string>> names = options_.files->List(directory);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (kept.count(name) > 0) continue;
    const absl::Status removed = options_.files->RemoveFile(absl::StrCat(directory, "/", name));
    if (!removed.ok()) return removed;
  }
  return absl::OkStatus();
}

absl::Status BackupFetch::Fetch(const CopiedFile& file, const std::string& directory,
                                std::optional<uint32_t> crc32c) {
  const std::string path = absl::StrCat(directory, "/", file.file());
  const std::string temporary = TemporaryPath(path);
  absl::Status status = options_.files->CreateDirectories(ParentDirectory(path));
  if (!status.ok()) return status;
  absl::StatusOr<std::unique_ptr<WritableFile>> out = options_.files->CreateFile(temporary);
  if (!out.ok()) return out.status();
  const absl::StatusOr<uint32_t> received = Receive(file, out->get());
  if (!received.ok()) return received.status();
  if (crc32c.has_value() && *received != *crc32c) {
    return OfPeer(absl::DataLossError("the copy there is damaged, too"));
  }
  status = (*out)->Sync();
  if (status.ok()) status = options_.files->Rename(temporary, path);
  if (status.ok()) status = options_.files->SyncDirectory(ParentDirectory(path));
  return status;
}

absl::StatusOr<uint32_t> BackupFetch::Receive(const CopiedFile& file, WritableFile* out) {
  uint32_t crc = 0;
  const auto bytes = static_cast<int64_t>(file.bytes());
  ReadCopyRequest request;
  *request.mutable_file() = file;
  request.set_max_bytes(kCopyPieceBytes);
  while (out->size() < bytes) {
    request.set_offset(static_cast<uint64_t>(out->size()));
    const absl::StatusOr<ReadCopyReply> piece = options_.peer->Read(request);
    if (!piece.ok()) return OfPeer(piece.status());
    if (piece->data().empty() || out->size() + static_cast<int64_t>(piece->data().size()) > bytes) {
      return OfPeer(absl::DataLossError(absl::StrCat(file.file(), " is not ", bytes,
                                                     " bytes long as the list of copies states")));
    }
    if (absl::Status written = out->Append(piece->data()); !written.ok()) return written;
    crc = Crc32c(crc, piece->data());
    options_.done();
  }
  return crc;
}

}  // namespace torchps
