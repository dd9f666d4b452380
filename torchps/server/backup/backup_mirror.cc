#include "torchps/server/backup/backup_mirror.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "torchps/server/backup/backup_peer.h"

namespace torchps {
namespace {

// Size of a log file's header. The header contains a random number
// (torchps/server/push_log/log_segment.h), so it tells two files of the same name apart.
constexpr int64_t kHeadBytes = 72;

// Maximum number of files in one DropCopies call.
constexpr size_t kMaxDropped = 1000;

}  // namespace

BackupMirror::BackupMirror(Options options) : options_(std::move(options)) {}

void BackupMirror::Want(const std::string& file, bool complete, Version version) {
  Whole* whole = Find(file);
  if (whole == nullptr) {
    wholes_.emplace_back();
    whole = &wholes_.back();
    whole->file = file;
    whole->kept = version == Version::kKept;
    // Ask for the list again, because only the list shows if the copy exists.
    if (whole->kept) met_ = false;
  } else if (version == Version::kNew) {
    whole->there = whole->kept = false;
    if (upload_.file == file) upload_ = Upload();
  }
  whole->complete = whole->complete || complete;
}

void BackupMirror::WantOnly(const std::vector<std::string>& files) {
  for (const Whole& whole : wholes_) {
    if (!absl::c_linear_search(files, whole.file)) superfluous_.push_back(whole.file);
  }
  wholes_.erase(
      std::remove_if(wholes_.begin(), wholes_.end(),
                     [&](const Whole& whole) { return !absl::c_linear_search(files, whole.file); }),
      wholes_.end());
  if (Find(upload_.file) == nullptr && growths_.count(upload_.file) == 0) upload_ = Upload();
}

const BackupMirror::Whole* BackupMirror::Find(const std::string& file) const {
  const auto found =
      absl::c_find_if(wholes_, [&](const Whole& whole) { return whole.file == file; });
  return found == wholes_.end() ? nullptr : &*found;
}

BackupMirror::Whole* BackupMirror::Find(const std::string& file) {
  return const_cast<Whole*>(std::as_const(*this).Find(file));
}

bool BackupMirror::IsThere(const std::string& file) const {
  const Whole* const whole = Find(file);
  return met_ && whole != nullptr && whole->there;
}

absl::StatusOr<std::unique_ptr<ReadableFile>> BackupMirror::Open(const std::string& file) const {
  return options_.files->OpenForReading(absl::StrCat(options_.directory, "/", file));
}

CopiedFile BackupMirror::Copied(const std::string& file, int64_t bytes) const {
  CopiedFile copied;
  copied.set_job_id(options_.job_id);
  copied.set_server_index(options_.server_index);
  copied.set_file(file);
  copied.set_bytes(static_cast<uint64_t>(bytes));
  return copied;
}

absl::Status BackupMirror::OfPeer(const absl::Status& status) const {
  // NOT_FOUND is reserved for local files.
  const absl::StatusCode code =
      absl::IsNotFound(status) ? absl::StatusCode::kUnavailable : status.code();
  return absl::Status(code, absl::StrCat(options_.peer->name(), ": ", status.message()));
}

absl::StatusOr<bool> BackupMirror::Step() {
  absl::StatusOr<bool> stepped = TryStep();
  if (stepped.ok()) {
    if (met_) has_stumbled_ = false;
    return stepped;
  }
  met_ = false;
  upload_ = Upload();
  // The peer was restarted, or a local file was removed. Retry once with a new list.
  const bool is_other = absl::IsAborted(stepped.status()) || absl::IsOutOfRange(stepped.status()) ||
                        absl::IsNotFound(stepped.status());
  if (is_other && !std::exchange(has_stumbled_, true)) return true;
  return stepped;
}

absl::StatusOr<bool> BackupMirror::TryStep() {
  if (!met_) {
    if (absl::Status met = Meet(); !met.ok()) return met;
    return true;
  }
  if (!superfluous_.empty()) {
    if (absl::Status dropped = DropSome(); !dropped.ok()) return dropped;
    return true;
  }
  absl::StatusOr<bool> sent = SendWhole(/*complete=*/true);
  if (!sent.ok() || *sent) return sent;
  sent = SendLog();
  if (!sent.ok() || *sent) return sent;
  return SendWhole(/*complete=*/false);
}

absl::Status BackupMirror::Meet() {
  ListCopiesRequest request;
  request.set_job_id(options_.job_id);
  request.set_server_index(options_.server_index);
  const absl::StatusOr<ListCopiesReply> list = options_.peer->List(request);
  if (!list.ok()) return OfPeer(list.status());
  std::map<std::string, int64_t> there;
  for (const CopiedFile& file : list->file()) {
    there[file.file()] = static_cast<int64_t>(file.bytes());
  }
  superfluous_.clear();
  std::vector<Whole> wholes;
  for (Whole& whole : wholes_) {
    const auto file = Open(whole.file);
    if (absl::IsNotFound(file.status())) continue;
    if (!file.ok()) return file.status();
    whole.bytes = (*file)->size();
    const auto copy = there.find(whole.file);
    whole.there = (whole.there || whole.kept) && copy != there.end() && copy->second == whole.bytes;
    wholes.push_back(std::move(whole));
  }
  wholes_ = std::move(wholes);
  if (options_.log != nullptr) target_ = options_.log->GetExtent();
  std::map<std::string, Growth> growths;
  for (const GrowingFile& file : target_.files) {
    const auto known = growths_.find(file.file);
    Growth growth = known == growths_.end() ? Growth() : known->second;
    const auto copy = there.find(file.file);
    if (copy == there.end()) {
      growth = Growth();
    } else if (absl::Status met = MeetGrowing(file, copy->second, &growth); !met.ok()) {
      return met;
    }
    growths[file.file] = growth;
  }
  growths_ = std::move(growths);
  for (const auto& [file, bytes] : there) {
    if (Find(file) == nullptr && growths_.count(file) == 0) superfluous_.push_back(file);
  }
  met_ = true;
  return absl::OkStatus();
}

absl::Status BackupMirror::MeetGrowing(const GrowingFile& file, int64_t there, Growth* growth) {
  absl::StatusOr<bool> is_same = there >= kHeadBytes;
  if (*is_same) is_same = HasSameHead(file.file);
  if (!is_same.ok()) return is_same.status();
  growth->replaces = !*is_same;
  if (growth->replaces) {
    growth->copied = 0;
  } else if (growth->copied == 0 || growth->copied > there) {
    // The copy was sent before a restart, so the last piece may be torn. Send that piece again.
    growth->copied = std::max<int64_t>(0, there - kCopyPieceBytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> BackupMirror::HasSameHead(const std::string& file) const {
  const auto own = Open(file);
  if (!own.ok()) return own.status();
  std::string head(kHeadBytes, '\0');
  if (absl::Status read = (*own)->ReadAt(0, absl::MakeSpan(&head[0], head.size())); !read.ok()) {
    return read;
  }
  ReadCopyRequest request;
  *request.mutable_file() = Copied(file, 0);
  request.set_max_bytes(kHeadBytes);
  const absl::StatusOr<ReadCopyReply> copy = options_.peer->Read(request);
  if (!copy.ok()) return OfPeer(copy.status());
  return copy->data() == head;
}

void BackupMirror::TakeTarget() {
  target_ = options_.log->GetExtent();
  std::map<std::string, Growth> growths;
  for (const GrowingFile& file : target_.files) {
    const auto known = growths_.find(file.file);
    growths[file.file] = known == growths_.end() ? Growth() : known->second;
  }
  for (const auto& [file, growth] : growths_) {
    if (growths.count(file) == 0) superfluous_.push_back(file);
  }
  growths_ = std::move(growths);
}

absl::Status BackupMirror::DropSome() {
  DropCopiesRequest request;
  const size_t left = superfluous_.size() - std::min(superfluous_.size(), kMaxDropped);
  for (size_t i = left; i < superfluous_.size(); ++i) {
    // The file may be wanted again by now.
    if (Find(superfluous_[i]) != nullptr || growths_.count(superfluous_[i]) > 0) continue;
    *request.add_file() = Copied(superfluous_[i], 0);
  }
  if (request.file_size() > 0) {
    const absl::StatusOr<DropCopiesReply> dropped = options_.peer->Drop(request);
    if (!dropped.ok()) return OfPeer(dropped.status());
  }
  superfluous_.resize(left);
  return absl::OkStatus();
}

BackupMirror::Whole* BackupMirror::Next(bool complete) {
  Whole* next = nullptr;
  for (Whole& whole : wholes_) {
    if (whole.complete != complete || whole.there) continue;
    // Keep the order, because a manifest must follow the shard.
    if (complete) return &whole;
    const auto source = Open(whole.file);
    if (!source.ok() || (*source)->size() <= kCopyPieceBytes) return &whole;
    if (next == nullptr || whole.file == upload_.file) next = &whole;
  }
  return next;
}

absl::StatusOr<bool> BackupMirror::SendWhole(bool complete) {
  Whole* const next = Next(complete);
  if (next == nullptr) return false;
  const absl::StatusOr<bool> sent = SendUpload(next->file, /*bytes=*/-1, &next->bytes);
  // The file was removed in the meantime.
  if (absl::IsNotFound(sent.status())) {
    wholes_.erase(wholes_.begin() + (next - wholes_.data()));
    return true;
  }
  if (!sent.ok()) return sent;
  next->there = *sent;
  return true;
}

absl::StatusOr<bool> BackupMirror::SendLog() {
  if (options_.log == nullptr) return false;
  for (const GrowingFile& file : target_.files) {
    Growth& growth = growths_[file.file];
    if (growth.copied >= file.bytes) continue;
    if (growth.replaces) {
      int64_t size = 0;
      const absl::StatusOr<bool> sent = SendUpload(file.file, file.bytes, &size);
      if (!sent.ok()) return sent;
      if (*sent) growth = {size, /*replaces=*/false};
      return true;
    }
    const auto source = Open(file.file);
    if (absl::IsNotFound(source.status())) {
      // The log removed this file, because a checkpoint made it obsolete. GetExtent() no longer
      // lists it.
      TakeTarget();
      if (growths_.count(file.file) > 0) return source.status();
      return true;
    }
    if (!source.ok()) return source.status();
    const absl::Status sent = SendPiece(**source, file.file, /*whole_bytes=*/0, growth.copied,
                                        file.bytes, &growth.copied);
    if (!sent.ok()) return sent;
    return true;
  }
  position_ = std::max(position_, target_.position);
  const uint64_t reached = target_.position;
  TakeTarget();
  return !superfluous_.empty() || target_.position > reached ||
         absl::c_any_of(target_.files, [this](const GrowingFile& file) {
           return growths_[file.file].copied < file.bytes;
         });
}

absl::StatusOr<bool> BackupMirror::SendUpload(const std::string& file, int64_t bytes,
                                              int64_t* size) {
  if (upload_.file != file) {
    auto source = Open(file);
    if (!source.ok()) return source.status();
    *size = bytes < 0 ? (*source)->size() : bytes;
    // An empty file needs no copy.
    if (*size == 0) return true;
    if (*size <= kCopyPieceBytes) {
      int64_t reached = 0;
      const absl::Status sent = SendPiece(**source, file, *size, 0, *size, &reached);
      if (!sent.ok()) return sent;
      return true;
    }
    upload_ = {file, *std::move(source), *size, /*sent=*/0};
  }
  *size = upload_.bytes;
  const absl::Status sent =
      SendPiece(*upload_.source, file, upload_.bytes, upload_.sent, upload_.bytes, &upload_.sent);
  if (!sent.ok()) return sent;
  if (upload_.sent < upload_.bytes) return false;
  upload_ = Upload();
  return true;
}

absl::Status BackupMirror::SendPiece(const ReadableFile& source, const std::string& file,
                                     int64_t whole_bytes, int64_t offset, int64_t end,
                                     int64_t* reached) {
  const int64_t size = std::min(end - offset, kCopyPieceBytes);
  *piece_.mutable_file() = Copied(file, whole_bytes);
  piece_.set_offset(static_cast<uint64_t>(offset));
  std::string* const data = piece_.mutable_data();
  data->resize(static_cast<size_t>(size));
  const absl::Status read = source.ReadAt(offset, absl::MakeSpan(&(*data)[0], data->size()));
  if (!read.ok()) return read;
  const absl::StatusOr<StoreCopyReply> stored = options_.peer->Store(piece_);
  if (!stored.ok()) return OfPeer(stored.status());
  if (static_cast<int64_t>(stored->bytes()) < offset + size) {
    return OfPeer(absl::InternalError(
        absl::StrCat("the server reports a copy of ", file, " with ", stored->bytes(),
                     " bytes after storing a piece up to byte ", offset + size)));
  }
  *reached = offset + size;
  return absl::OkStatus();
}

void BackupMirror::CountBytes(uint64_t* copied, uint64_t* uncopied) const {
  *copied = *uncopied = 0;
  for (const Whole& whole : wholes_) {
    *(whole.there ? copied : uncopied) += static_cast<uint64_t>(whole.bytes);
  }
  for (const GrowingFile& file : target_.files) {
    const auto growth = growths_.find(file.file);
    const int64_t there =
        growth == growths_.end() ? 0 : std::min(growth->second.copied, file.bytes);
    *copied += static_cast<uint64_t>(there);
    *uncopied += static_cast<uint64_t>(file.bytes - there);
  }
}

}  // namespace torchps
