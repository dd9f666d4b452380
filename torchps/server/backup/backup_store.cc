#include "torchps/server/backup/backup_store.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps {
namespace {

// Bytes between two syncs of a large file. This bounds the duration of the last sync.
constexpr int64_t kSyncEvery = int64_t{64} << 20;

StoreCopyReply Ends(int64_t bytes) {
  StoreCopyReply reply;
  reply.set_bytes(static_cast<uint64_t>(bytes));
  return reply;
}

absl::Status MustList() {
  return absl::AbortedError("this server was restarted; request the list of copies first");
}

absl::Status Behind(const StoreCopyRequest& request, int64_t end) {
  return absl::OutOfRangeError(absl::StrCat("the copy of ", request.file().file(), " ends at byte ",
                                            end, ", and the piece begins at byte ",
                                            request.offset()));
}

absl::Status CheckFile(const CopiedFile& file) {
  if (absl::Status named = CheckBackupName(file.file()); !named.ok()) return named;
  if (file.job_id() == 0 || file.server_index() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid copy of server ", file.server_index(), " of job ", file.job_id(),
                     "; expected a server from 0 and a job other than 0"));
  }
  return absl::OkStatus();
}

absl::Status UnlessNotFound(absl::Status status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

BackupStore::BackupStore(FileSystem* files, std::string directory)
    : files_(files), directory_(std::move(directory)) {}

std::string BackupStore::GetFolder(uint64_t job_id, int server_index) const {
  return absl::StrCat(directory_, "/", BackupFolderName(job_id, server_index));
}

std::string BackupStore::MakePath(const CopiedFile& file) const {
  return absl::StrCat(GetFolder(file.job_id(), file.server_index()), "/", file.file());
}

absl::StatusOr<StoreCopyReply> BackupStore::Store(const StoreCopyRequest& request) {
  const CopiedFile& file = request.file();
  if (absl::Status possible = CheckFile(file); !possible.ok()) return possible;
  const auto size = static_cast<int64_t>(request.data().size());
  if (size == 0 || size > kCopyPieceBytes || request.offset() > uint64_t{1} << 62 ||
      (file.bytes() > 0 && request.offset() + request.data().size() > file.bytes())) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid piece of ", size, " bytes at byte ", request.offset(), " of ",
                     file.file(), "; expected 1 to ", kCopyPieceBytes, " bytes of the file"));
  }
  const auto owner = owners_.find({file.job_id(), file.server_index()});
  if (owner == owners_.end()) return MustList();
  return file.bytes() > 0 ? StoreWhole(request, &owner->second)
                          : StoreGrowing(request, &owner->second);
}

absl::StatusOr<StoreCopyReply> BackupStore::StoreWhole(const StoreCopyRequest& request,
                                                       Owner* owner) {
  const std::string path = MakePath(request.file());
  const auto bytes = static_cast<int64_t>(request.file().bytes());
  const auto offset = static_cast<int64_t>(request.offset());
  const auto size = static_cast<int64_t>(request.data().size());
  // This file replaces a growing file of the same name. If a growing file follows later, the
  // directory must be synced again.
  owner->named.erase(path);
  // Write a small file at once. This does not disturb a large transfer in progress.
  if (size == bytes) {
    absl::Status stored = files_->CreateDirectories(ParentDirectory(path));
    if (stored.ok()) stored = WriteFileAtomically(*files_, path, request.data());
    if (!stored.ok()) return stored;
    return Ends(bytes);
  }
  Upload& upload = owner->upload;
  if (offset == 0) {
    upload = Upload();
    if (absl::Status made = files_->CreateDirectories(ParentDirectory(path)); !made.ok()) {
      return made;
    }
    absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->CreateFile(TemporaryPath(path));
    if (!file.ok()) return file.status();
    upload.path = path;
    upload.file = *std::move(file);
    upload.bytes = bytes;
  } else if (upload.path != path || upload.bytes != bytes) {
    return Behind(request, 0);
  }
  if (offset > upload.arrived) return Behind(request, upload.arrived);
  if (offset + size <= upload.arrived) return Ends(upload.arrived);
  if (absl::Status received = Receive(request, &upload); !received.ok()) {
    // Start again, because data after a failed sync is not trusted.
    upload = Upload();
    return received;
  }
  return Ends(upload.arrived);
}

absl::Status BackupStore::Receive(const StoreCopyRequest& request, Upload* upload) {
  const absl::string_view data =
      absl::string_view(request.data())
          .substr(upload->arrived - static_cast<int64_t>(request.offset()));
  if (absl::Status written = upload->file->Append(data); !written.ok()) return written;
  upload->arrived += static_cast<int64_t>(data.size());
  const bool is_whole = upload->arrived == upload->bytes;
  if (!is_whole && upload->arrived - upload->synced < kSyncEvery) return absl::OkStatus();
  if (absl::Status synced = upload->file->Sync(); !synced.ok()) return synced;
  upload->synced = upload->arrived;
  if (!is_whole) return absl::OkStatus();
  upload->file = nullptr;
  if (absl::Status named = files_->Rename(TemporaryPath(upload->path), upload->path); !named.ok()) {
    return named;
  }
  return files_->SyncDirectory(ParentDirectory(upload->path));
}

absl::StatusOr<StoreCopyReply> BackupStore::StoreGrowing(const StoreCopyRequest& request,
                                                         Owner* owner) {
  const std::string path = MakePath(request.file());
  const auto offset = static_cast<int64_t>(request.offset());
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->OpenForAppend(path);
  if (absl::IsNotFound(file.status())) {
    if (offset > 0) return Behind(request, 0);
    absl::Status stored = files_->CreateDirectories(ParentDirectory(path));
    if (stored.ok()) stored = WriteFileAtomically(*files_, path, request.data());
    if (!stored.ok()) return stored;
    owner->named.insert(path);
    return Ends(static_cast<int64_t>(request.data().size()));
  }
  if (!file.ok()) return file.status();
  const int64_t end = (*file)->size();
  if (offset > end) return Behind(request, end);
  // Existing bytes may be torn or unsynced, so write them again.
  const absl::string_view data = request.data();
  const absl::string_view there = data.substr(0, static_cast<size_t>(end - offset));
  absl::Status stored;
  if (!there.empty()) stored = (*file)->WriteAt(offset, there);
  if (stored.ok() && there.size() < data.size())
    stored = (*file)->Append(data.substr(there.size()));
  if (stored.ok()) stored = (*file)->Sync();
  if (!stored.ok()) return stored;
  if (owner->named.count(path) == 0) {
    if (absl::Status named = files_->SyncDirectory(ParentDirectory(path)); !named.ok()) {
      return named;
    }
    owner->named.insert(path);
  }
  return Ends((*file)->size());
}

absl::StatusOr<DropCopiesReply> BackupStore::Drop(const DropCopiesRequest& request) {
  std::set<std::string> folders;
  for (const CopiedFile& file : request.file()) {
    if (absl::Status possible = CheckFile(file); !possible.ok()) return possible;
  }
  for (const CopiedFile& file : request.file()) {
    const std::string path = MakePath(file);
    const auto owner = owners_.find({file.job_id(), file.server_index()});
    if (owner == owners_.end()) return MustList();
    owner->second.named.erase(path);
    if (owner->second.upload.path == path) owner->second.upload = Upload();
    const absl::Status removed = files_->RemoveFile(path);
    if (absl::IsNotFound(removed)) continue;
    if (!removed.ok()) return removed;
    folders.insert(ParentDirectory(path));
  }
  for (const std::string& folder : folders) {
    if (absl::Status synced = UnlessNotFound(files_->SyncDirectory(folder)); !synced.ok()) {
      return synced;
    }
    // Succeeds only if the directory is empty.
    files_->RemoveDirectory(folder).IgnoreError();
  }
  return DropCopiesReply();
}

absl::StatusOr<ListCopiesReply> BackupStore::List(const ListCopiesRequest& request) {
  ListCopiesReply reply;
  const absl::StatusOr<std::vector<std::string>> names = files_->List(directory_);
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    uint64_t job_id = 0;
    int server_index = 0;
    if (!ParseBackupFolderName(name, &job_id, &server_index) ||
        server_index != request.server_index() ||
        (request.job_id() != 0 && request.job_id() != job_id)) {
      continue;
    }
    if (absl::Status listed = ListFolder(job_id, server_index, &reply); !listed.ok()) return listed;
  }
  if (request.job_id() != 0) owners_[{request.job_id(), request.server_index()}];
  return reply;
}

absl::Status BackupStore::ListFolder(uint64_t job_id, int server_index, ListCopiesReply* reply) {
  const std::string folder = GetFolder(job_id, server_index);
  const absl::StatusOr<std::vector<std::string>> names = files_->List(folder);
  if (!names.ok()) return UnlessNotFound(names.status());
  CopiedFile copied;
  copied.set_job_id(job_id);
  copied.set_server_index(server_index);
  for (const std::string& name : *names) {
    const absl::StatusOr<std::vector<std::string>> within =
        files_->List(absl::StrCat(folder, "/", name));
    if (!within.ok()) {
      // Not a directory. The status depends on the file system.
      if (!absl::IsNotFound(within.status()) && !absl::IsFailedPrecondition(within.status())) {
        return within.status();
      }
      if (absl::Status listed = ListFile(folder, name, copied, reply); !listed.ok()) return listed;
      continue;
    }
    for (const std::string& inner : *within) {
      const absl::Status listed = ListFile(folder, absl::StrCat(name, "/", inner), copied, reply);
      if (!listed.ok()) return listed;
    }
  }
  return absl::OkStatus();
}

absl::Status BackupStore::ListFile(const std::string& folder, const std::string& file,
                                   CopiedFile copied, ListCopiesReply* reply) {
  const std::string path = absl::StrCat(folder, "/", file);
  const auto owner = owners_.find({copied.job_id(), copied.server_index()});
  if (absl::EndsWith(file, ".tmp")) {
    // If that server has not called List() yet, the file is left over from before a restart.
    if (owner == owners_.end()) return UnlessNotFound(files_->RemoveFile(path));
    return absl::OkStatus();
  }
  if (!CheckBackupName(file).ok()) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<ReadableFile>> opened = files_->OpenForReading(path);
  // Ignore directories and files that users added.
  if (absl::IsNotFound(opened.status()) || absl::IsFailedPrecondition(opened.status())) {
    return absl::OkStatus();
  }
  if (!opened.ok()) return opened.status();
  copied.set_file(file);
  copied.set_bytes(static_cast<uint64_t>((*opened)->size()));
  *reply->add_file() = std::move(copied);
  return absl::OkStatus();
}

absl::StatusOr<ReadCopyReply> BackupStore::Read(const ReadCopyRequest& request) {
  if (absl::Status possible = CheckFile(request.file()); !possible.ok()) return possible;
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file =
      files_->OpenForReading(MakePath(request.file()));
  if (!file.ok()) return file.status();
  ReadCopyReply reply;
  const auto end = static_cast<uint64_t>((*file)->size());
  if (request.offset() >= end) return reply;
  const uint64_t bytes = std::min(
      {end - request.offset(), request.max_bytes(), static_cast<uint64_t>(kCopyPieceBytes)});
  reply.mutable_data()->resize(bytes);
  const absl::Status read = (*file)->ReadAt(static_cast<int64_t>(request.offset()),
                                            absl::MakeSpan(&(*reply.mutable_data())[0], bytes));
  if (!read.ok()) return read;
  return reply;
}

}  // namespace torchps
