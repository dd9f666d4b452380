#include "torchps/storage/file_system.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace torchps {

absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path,
                                          int64_t max_bytes) {
  absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenForReading(path);
  if (!file.ok()) return file.status();
  const int64_t size = (*file)->size();
  if (size > max_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " has ", size, " bytes; expected ", max_bytes, " at most"));
  }
  std::string contents(static_cast<size_t>(size), '\0');
  if (absl::Status status = (*file)->ReadAt(0, absl::MakeSpan(&contents[0], contents.size()));
      !status.ok()) {
    return status;
  }
  return contents;
}

absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 absl::string_view contents) {
  const std::string temporary = TemporaryPath(path);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files.CreateFile(temporary);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->Append(contents);
  if (status.ok()) status = (*file)->Sync();
  if (absl::Status closed = (*file)->Close(); status.ok()) status = closed;
  if (status.ok()) status = files.Rename(temporary, path);
  if (!status.ok()) {
    // Free the space in case the disk is full. A leftover file is harmless.
    files.RemoveFile(temporary).IgnoreError();
    return status;
  }
  return files.SyncDirectory(ParentDirectory(path));
}

std::string TemporaryPath(const std::string& path) { return absl::StrCat(path, ".tmp"); }

std::string ParentDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status FileError(FileAction action, absl::string_view doing, absl::string_view path,
                       int error_number) {
  const std::string sentence =
      absl::StrCat("cannot ", doing, " ", path, ": ", std::strerror(error_number));
  switch (error_number) {
    case ENOENT:
      return absl::NotFoundError(sentence);
    case EEXIST:
      return absl::AlreadyExistsError(sentence);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(sentence);
    case EROFS:
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return absl::FailedPreconditionError(sentence);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(sentence);
    case EIO:
    case EUCLEAN:
    case EBADMSG:
      return action == FileAction::kRead ? absl::DataLossError(sentence)
                                         : absl::UnavailableError(sentence);
    default:
      return absl::UnavailableError(sentence);
  }
}

}  // namespace torchps
