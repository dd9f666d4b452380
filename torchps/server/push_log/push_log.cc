#include "torchps/server/push_log/push_log.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "torchps/common/check.h"
#include "torchps/common/process/failpoint.h"

namespace torchps {
namespace {

// True for errors that may be temporary: a full disk or an I/O error.
bool MayPass(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

std::string SegmentPath(const std::string& directory, uint64_t number) {
  return absl::StrCat(directory, "/", LogSegmentName(number));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PushLog>> PushLog::Open(FileSystem* files, Options options,
                                                       const LogEnd& end) {
  if (absl::Status made = files->CreateDirectories(options.directory); !made.ok()) return made;
  auto log = absl::WrapUnique(new PushLog(files, std::move(options), end));
  const absl::StatusOr<bool> begun = log->WriteGroup();
  if (!begun.ok() && !MayPass(begun.status())) return begun.status();
  return log;
}

PushLog::PushLog(FileSystem* files, Options options, const LogEnd& end)
    : files_(files),
      options_(std::move(options)),
      segment_bytes_(end.durable_bytes),
      segments_(end.segments),
      sequence_(end.durable_sequence),
      durable_(end.durable_sequence),
      durable_bytes_(end.durable_bytes),
      tail_bytes_(static_cast<int64_t>(end.tail.size())),
      safe_(options_.copier != nullptr ? 0 : static_cast<int64_t>(end.durable_sequence)) {
  MutexLock lock(&mutex_);
  BeginGroup(LogBuffer(), /*begins_segment=*/true);
  if (end.tail.empty()) return;
  Group& group = groups_.back();
  std::memcpy(group.records.Extend(end.tail.size()), end.tail.data(), end.tail.size());
  sequence_ = end.last_sequence;
  group.last_sequence = sequence_;
  appended_bytes_ = static_cast<int64_t>(end.tail.size());
  group.end_bytes = appended_bytes_;
}

PushLog::~PushLog() = default;

void PushLog::BeginGroup(LogBuffer buffer, bool begins_segment) {
  Group group;
  group.records = std::move(buffer);
  group.first_sequence = sequence_ + 1;
  group.last_sequence = sequence_;
  group.end_bytes = appended_bytes_;
  group.begins_segment = begins_segment;
  groups_.push_back(std::move(group));
}

void PushLog::Append(LogRecord record, const FramePayload& payload) {
  const size_t bytes = LogRecordBytes(record.ledger.size(), record.absent.size(), payload.bytes());
  MutexLock lock(&mutex_);
  Group& group = groups_.back();
  record.sequence = ++sequence_;
  WriteLogRecord(record, payload, group.records.Extend(bytes));
  appended_bytes_ += static_cast<int64_t>(bytes);
  group.last_sequence = sequence_;
  group.end_bytes = appended_bytes_;
  ++figures_.records;
  figures_.bytes += bytes;
  work_.Signal();
}

PushLog::WaiterId PushLog::WhenDurable(Continuation continuation) {
  MutexLock lock(&mutex_);
  const auto last = static_cast<int64_t>(sequence_);
  if (safe_.value() >= last) return 0;
  return safe_.WhenAtLeast(last, std::move(continuation));
}

PushLog::WaiterId PushLog::WhenRoom(Continuation continuation) {
  MutexLock lock(&mutex_);
  const int64_t threshold = appended_bytes_ - options_.buffer_bytes;
  if (safe_bytes_.value() >= threshold) return 0;
  return safe_bytes_.WhenAtLeast(threshold, std::move(continuation));
}

void PushLog::CancelDurable(WaiterId id) {
  MutexLock lock(&mutex_);
  safe_.Cancel(id);
}

void PushLog::CancelRoom(WaiterId id) {
  MutexLock lock(&mutex_);
  safe_bytes_.Cancel(id);
}

uint64_t PushLog::Rotate() {
  MutexLock lock(&mutex_);
  segment_is_due_ = true;
  Group& group = groups_.back();
  if (group.records.size() == 0) {
    group.begins_segment = true;
  } else {
    BeginGroup(LogBuffer(), /*begins_segment=*/true);
  }
  work_.Signal();
  return sequence_;
}

absl::Status PushLog::DropThrough(uint64_t sequence) {
  bool any = false;
  while (true) {
    uint64_t number = 0;
    {
      MutexLock lock(&mutex_);
      if (segments_.size() < 2 || segments_[1].first_sequence > sequence + 1) break;
      number = segments_[0].number;
    }
    const absl::Status removed = files_->RemoveFile(SegmentPath(options_.directory, number));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    any = true;
    MutexLock lock(&mutex_);
    segments_.erase(segments_.begin());
    // The next write looks how much room there is now.
    room_ = std::numeric_limits<int64_t>::max();
    JudgeLength();
  }
  return any ? files_->SyncDirectory(options_.directory) : absl::OkStatus();
}

absl::Status PushLog::Flush() {
  uint64_t last = 0;
  {
    MutexLock lock(&mutex_);
    last = sequence_;
  }
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (durable_ >= last && !segment_is_due_) return absl::OkStatus();
    }
    const absl::StatusOr<bool> wrote = WriteGroup(/*into_reserve=*/true);
    if (!wrote.ok()) return wrote.status();
  }
}

PushLog::Figures PushLog::figures() const {
  MutexLock lock(&mutex_);
  return figures_;
}

PushLog::Extent PushLog::extent() const {
  Extent extent;
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < segments_.size(); ++i) {
    const bool is_last = i + 1 == segments_.size();
    const int64_t bytes = is_last ? durable_bytes_ + tail_bytes_ : segments_[i + 1].previous_bytes;
    if (is_last && bytes <= static_cast<int64_t>(kLogSegmentHeaderBytes)) break;
    extent.segments.push_back({segments_[i].number, bytes});
  }
  extent.sequence = durable_;
  return extent;
}

void PushLog::RaiseCopied(uint64_t sequence) {
  std::vector<Continuation> due;
  {
    MutexLock lock(&mutex_);
    copied_ = std::max(copied_, sequence);
    due = RaiseSafe();
  }
  for (const Continuation& continuation : due) continuation();
}

std::vector<PushLog::Continuation> PushLog::RaiseSafe() {
  const uint64_t safe = options_.copier != nullptr ? std::min(durable_, copied_) : durable_;
  std::vector<Continuation> due = safe_.RaiseTo(static_cast<int64_t>(safe));
  while (!unsafe_.empty() && unsafe_.front().first <= safe) {
    for (Continuation& room : safe_bytes_.RaiseTo(unsafe_.front().second)) {
      due.push_back(std::move(room));
    }
    unsafe_.pop_front();
  }
  return due;
}

void PushLog::AwaitWork(absl::Duration patience) {
  MutexLock lock(&mutex_);
  const Group& group = groups_.front();
  if (!woken_ && groups_.size() == 1 && group.records.size() == 0 && !group.begins_segment) {
    work_.WaitFor(&mutex_, patience);
  }
  woken_ = false;
}

void PushLog::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  work_.Signal();
}

bool PushLog::TakeGroup() {
  if (current_.has_value()) return true;
  {
    MutexLock lock(&mutex_);
    Group& group = groups_.front();
    if (groups_.size() == 1) {
      if (group.records.size() == 0 && !group.begins_segment) return false;
      BeginGroup(std::move(spare_), /*begins_segment=*/false);
      spare_ = LogBuffer();
    }
    current_ = std::move(groups_.front());
    groups_.pop_front();
    current_->durable_sequence = static_cast<uint64_t>(safe_.value());
  }
  return true;
}

bool PushLog::JudgeLength() {
  int64_t length = durable_bytes_;
  for (size_t i = 1; i < segments_.size(); ++i) length += segments_[i].previous_bytes;
  const auto empty = static_cast<int64_t>(segments_.size() * kLogSegmentHeaderBytes);
  wants_checkpoint_ = length > empty && length > std::min(options_.checkpoint_bytes, room_);
  return length > empty;
}

absl::Status PushLog::CheckRoom() {
  const absl::StatusOr<int64_t> free = files_->FreeBytes(options_.directory);
  MutexLock lock(&mutex_);
  if (free.ok()) room_ = *free - options_.reserve_bytes - (appended_bytes_ - written_bytes_);
  const bool has_records = JudgeLength();
  // If the free space is unknown, the write will fail if there is too little. A checkpoint does not
  // shorten a log without records.
  const bool may_write = !free.ok() || room_ >= 0 || options_.reserve_bytes == 0 || !has_records;
  if (may_write) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(options_.directory, " has only the ", options_.reserve_bytes,
                   " bytes left that are kept for the next checkpoint, which shortens the log"));
}

absl::StatusOr<bool> PushLog::WriteGroup(bool into_reserve) {
  std::vector<Continuation> due;
  {
    MutexLock write(&write_mutex_);
    if (!TakeGroup()) return false;
    absl::Status written = current_->records.size() > 0 ? CheckRoom() : absl::OkStatus();
    if (written.ok() || into_reserve) written = WriteOut(&*current_);
    MutexLock lock(&mutex_);
    if (!written.ok()) {
      figures_.trouble = std::string(written.message());
      return written;
    }
    ReachFailpoint(Failpoint::kLogSynced);
    figures_.trouble.clear();
    ++figures_.syncs;
    durable_ = std::max(durable_, current_->last_sequence);
    durable_bytes_ = segment_bytes_;
    written_bytes_ = std::max(written_bytes_, current_->end_bytes);
    JudgeLength();
    unsafe_.emplace_back(current_->last_sequence, current_->end_bytes);
    due = RaiseSafe();
    spare_ = std::move(current_->records);
    spare_.Clear();
    current_.reset();
  }
  for (const Continuation& continuation : due) continuation();
  if (options_.copier != nullptr) options_.copier->Wake();
  return true;
}

void PushLog::Seal(Group* group, uint64_t salt) {
  uint8_t* const end = group->records.data() + group->records.size();
  for (uint8_t* record = group->records.data(); record < end;) {
    record += SealLogRecord(salt, group->durable_sequence, record);
  }
}

absl::Status PushLog::WriteOut(Group* group) {
  if (group->begins_segment || file_ == nullptr) return OpenSegment(group);
  if (group->records.size() == 0) return absl::OkStatus();
  Seal(group, salt_);
  if (absl::Status written = file_->Append(group->records.view()); !written.ok()) {
    // After a full disk, writing continues in the same file. After other errors, the file is not
    // trusted.
    if (!absl::IsResourceExhausted(written)) file_.reset();
    return written;
  }
  ReachFailpoint(Failpoint::kLogWritten);
  if (absl::Status synced = file_->Sync(); !synced.ok()) {
    // Data of a failed sync may be lost even if the next sync succeeds. So the next attempt writes
    // it to a new segment, and the header there contains the valid length of this one.
    file_.reset();
    return synced;
  }
  segment_bytes_ = file_->size();
  return absl::OkStatus();
}

absl::Status PushLog::OpenSegment(Group* group) {
  LogSegmentHeader header;
  header.identity = options_.identity;
  header.number = 1;
  header.first_sequence = group->first_sequence;
  header.salt = options_.draw_salt();
  Seal(group, header.salt);
  bool replaces = false;
  {
    MutexLock lock(&mutex_);
    if (!segments_.empty()) {
      const LogSegmentHeader& last = segments_.back();
      // Replaces an empty last segment, to avoid one segment per retry.
      replaces = segment_bytes_ == static_cast<int64_t>(kLogSegmentHeaderBytes) &&
                 tail_bytes_ == 0 && last.first_sequence == group->first_sequence;
      header.number = replaces ? last.number : last.number + 1;
      header.previous_bytes = replaces ? last.previous_bytes : segment_bytes_;
    }
  }
  file_.reset();
  const std::string path = SegmentPath(options_.directory, header.number);
  const std::string temporary = TemporaryPath(path);
  const auto bytes = EncodeLogSegmentHeader(header);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files_->CreateFile(temporary);
  if (!file.ok()) return file.status();
  absl::Status status =
      (*file)->Append(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  // The first records are written together with the header. They may repeat the tail of the
  // previous segment, because that segment ends at `previous_bytes` as soon as this one exists.
  if (status.ok()) status = (*file)->Append(group->records.view());
  if (status.ok()) status = (*file)->Sync();
  if (status.ok()) status = files_->Rename(temporary, path);
  if (status.ok()) status = files_->SyncDirectory(options_.directory);
  if (!status.ok()) return status;
  // Reopened, so that error messages contain the final name.
  file = files_->OpenForAppend(path);
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  segment_bytes_ = file_->size();
  salt_ = header.salt;
  MutexLock lock(&mutex_);
  if (group->begins_segment) segment_is_due_ = false;
  if (!replaces) segments_.push_back(header);
  durable_bytes_ = segment_bytes_;
  tail_bytes_ = 0;
  return absl::OkStatus();
}

}  // namespace torchps
