#include "torchps/server/push_log/log_reader.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "torchps/server/push_log/log_segment.h"

namespace torchps {
namespace {

// Bytes to read at a time, unless a record is larger.
constexpr int64_t kWindowBytes = int64_t{4} << 20;

// Reads a file through a window in memory.
class Window {
 public:
  explicit Window(const ReadableFile& file) : file_(file) {}

  // Returns `bytes` bytes from `offset` on, or fewer if `end` comes first. The span is valid until
  // the next call.
  absl::StatusOr<absl::Span<const uint8_t>> At(int64_t offset, int64_t bytes, int64_t end) {
    bytes = std::min(bytes, end - offset);
    if (offset < begin_ || offset + bytes > begin_ + static_cast<int64_t>(buffer_.size())) {
      buffer_.resize(std::min(std::max(bytes, kWindowBytes), end - offset));
      begin_ = offset;
      const absl::Status read = file_.ReadAt(offset, absl::MakeSpan(buffer_));
      if (!read.ok()) {
        buffer_.clear();
        return read;
      }
    }
    return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(buffer_.data()) + (offset - begin_),
                               bytes);
  }

 private:
  const ReadableFile& file_;
  int64_t begin_ = 0;
  std::vector<char> buffer_;
};

// Reads one log.
class Reading {
 public:
  using Visit = absl::FunctionRef<absl::Status(const LogRecord&, const FramePayload&)>;

  Reading(FileSystem& files, const std::string& directory, const LogIdentity& identity, Visit visit)
      : files_(files), directory_(directory), identity_(identity), visit_(visit) {}

  absl::StatusOr<LogEnd> Run() {
    const absl::StatusOr<std::vector<std::string>> names = files_.List(directory_);
    if (absl::IsNotFound(names.status())) return end_;
    if (!names.ok()) return names.status();
    std::vector<uint64_t> numbers;
    for (const std::string& name : *names) {
      if (const auto number = LogSegmentNumber(name)) numbers.push_back(*number);
    }
    std::sort(numbers.begin(), numbers.end());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (i > 0 && numbers[i] != numbers[i - 1] + 1) {
        return absl::DataLossError(absl::StrCat(
            "segment ", LogSegmentName(numbers[i - 1] + 1), " of the push log in ", directory_,
            " is missing; put it back, or start the job from its last checkpoint in a new "
            "directory"));
      }
    }
    // The next segment's header contains the valid length of this one, so it is read first.
    std::optional<Opened> segment;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!segment.has_value()) {
        absl::StatusOr<Opened> opened = Open(numbers[i]);
        if (!opened.ok()) return opened.status();
        segment = *std::move(opened);
        expected_ = segment->header.first_sequence;
      }
      std::optional<Opened> next;
      if (i + 1 < numbers.size()) {
        absl::StatusOr<Opened> opened = Open(numbers[i + 1]);
        if (!opened.ok()) return opened.status();
        next = *std::move(opened);
      }
      if (const absl::Status read = Read(*segment, next); !read.ok()) return read;
      segment = std::move(next);
    }
    if (!numbers.empty()) end_.last_sequence = expected_ - 1;
    return std::move(end_);
  }

 private:
  struct Opened {
    std::string path;
    std::unique_ptr<ReadableFile> file;
    LogSegmentHeader header;
  };

  absl::StatusOr<Opened> Open(uint64_t number) {
    Opened segment;
    segment.path = absl::StrCat(directory_, "/", LogSegmentName(number));
    absl::StatusOr<std::unique_ptr<ReadableFile>> file = files_.OpenForReading(segment.path);
    if (!file.ok()) return file.status();
    segment.file = *std::move(file);
    char bytes[kLogSegmentHeaderBytes];
    const size_t size = std::min<int64_t>(segment.file->size(), sizeof(bytes));
    const absl::Status read = segment.file->ReadAt(0, absl::MakeSpan(bytes, size));
    if (!read.ok()) return read;
    const absl::StatusOr<LogSegmentHeader> header =
        ReadLogSegmentHeader(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes), size));
    if (absl::IsDataLoss(header.status()))
      return Damage(segment.path, 0, header.status().message());
    if (!header.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(segment.path, ": ", header.status().message()));
    }
    segment.header = *header;
    if (!(header->identity == identity_)) {
      return absl::FailedPreconditionError(
          absl::StrCat(segment.path, " belongs to server ", header->identity.server_index, " of ",
                       header->identity.server_count, " of job ", header->identity.job_id, " with ",
                       header->identity.blocks, " blocks; expected server ", identity_.server_index,
                       " of ", identity_.server_count, " of job ", identity_.job_id, " with ",
                       identity_.blocks, " blocks. Give this job a separate --dir"));
    }
    if (header->number != number) {
      return Damage(segment.path, 0, absl::StrCat("its header says segment ", header->number));
    }
    return segment;
  }

  absl::Status Read(const Opened& segment, const std::optional<Opened>& next) {
    end_.segments.push_back(segment.header);
    salt_ = segment.header.salt;
    if (segment.header.first_sequence != expected_) {
      return Damage(segment.path, 0,
                    absl::StrCat("it begins with record ", segment.header.first_sequence,
                                 "; expected record ", expected_));
    }
    const int64_t size = segment.file->size();
    int64_t end = size;
    if (next.has_value()) {
      end = next->header.previous_bytes;
      if (end < static_cast<int64_t>(kLogSegmentHeaderBytes) || end > size) {
        return Damage(segment.path, size,
                      absl::StrCat("the file ends here; the next segment expects it to have ", end,
                                   " bytes"));
      }
    }
    // Segments are created only when all earlier records are on disk.
    durable_ = expected_ - 1;
    unproven_.clear();
    Window window(*segment.file);
    int64_t offset = kLogSegmentHeaderBytes;
    while (offset < end) {
      absl::Status damage;
      const absl::StatusOr<int64_t> bytes = ReadOne(window, offset, end, &damage);
      if (!bytes.ok()) return bytes.status();
      if (!damage.ok()) {
        if (next.has_value()) return Damage(segment.path, offset, damage.message());
        const absl::StatusOr<bool> torn = IsTornTail(window, offset, end);
        if (!torn.ok()) return torn.status();
        if (!*torn) return Damage(segment.path, offset, damage.message());
        end_.cut_bytes = end - offset;
        break;
      }
      offset += *bytes;
    }
    return next.has_value() ? absl::OkStatus() : KeepTail(*segment.file, offset);
  }

  // Keeps the records of the last segment, up to `end`, that may not be on disk.
  absl::Status KeepTail(const ReadableFile& file, int64_t end) {
    end_.durable_sequence = durable_;
    end_.durable_bytes = unproven_.empty() ? end : unproven_.front().second;
    end_.tail.resize(end - end_.durable_bytes);
    return end_.tail.empty() ? absl::OkStatus()
                             : file.ReadAt(end_.durable_bytes, absl::MakeSpan(end_.tail));
  }

  // Reads one record at `offset`. Returns the record's length, or sets `*damage`.
  absl::StatusOr<int64_t> ReadOne(Window& window, int64_t offset, int64_t end,
                                  absl::Status* damage) {
    absl::StatusOr<absl::Span<const uint8_t>> bytes = window.At(offset, kLogRecordHeaderBytes, end);
    if (!bytes.ok()) return bytes.status();
    const absl::StatusOr<LogRecordHeader> header = ReadLogRecordHeader(salt_, *bytes);
    if (!header.ok()) {
      *damage = header.status();
      return 0;
    }
    bytes = window.At(offset, static_cast<int64_t>(header->bytes), end);
    if (!bytes.ok()) return bytes.status();
    LogRecord record;
    FramePayload payload;
    *damage = ReadLogRecord(salt_, *bytes, &record, &payload);
    if (!damage->ok()) return 0;
    if (record.sequence != expected_) {
      *damage = absl::DataLossError(
          absl::StrCat("record ", record.sequence, " follows; expected record ", expected_));
      return 0;
    }
    if (const absl::Status visited = visit_(record, payload); !visited.ok()) return visited;
    unproven_.emplace_back(expected_, offset);
    durable_ = std::max(durable_, record.durable_sequence);
    while (!unproven_.empty() && unproven_.front().first <= durable_) unproven_.pop_front();
    ++expected_;
    ++end_.records;
    return static_cast<int64_t>(header->bytes);
  }

  // True if a crash may have caused the damage at offset `damaged`: no later record shows that the
  // damaged record was on disk before. Disks write pages in any order, so valid records that were
  // never acknowledged may follow.
  absl::StatusOr<bool> IsTornTail(Window& window, int64_t damaged, int64_t end) {
    constexpr auto kHeader = static_cast<int64_t>(kLogRecordHeaderBytes);
    // At most this many records fit into the rest of the segment.
    const auto records_left = static_cast<uint64_t>((end - damaged) / kHeader);
    for (int64_t offset = damaged + 1; offset <= end - kHeader; ++offset) {
      const absl::StatusOr<absl::Span<const uint8_t>> bytes = window.At(offset, kHeader, end);
      if (!bytes.ok()) return bytes.status();
      const absl::StatusOr<LogRecordHeader> header = ReadLogRecordHeader(salt_, *bytes);
      const bool proves = header.ok() && header->durable_sequence >= expected_ &&
                          header->durable_sequence < header->sequence &&
                          header->sequence - expected_ <= records_left;
      if (proves) return false;
    }
    return true;
  }

  static absl::Status Damage(const std::string& path, int64_t offset, absl::string_view what) {
    return absl::DataLossError(
        absl::StrCat("the push log is damaged at ", path, ", byte ", offset, ": ", what));
  }

  FileSystem& files_;
  const std::string& directory_;
  const LogIdentity identity_;
  const Visit visit_;
  uint64_t expected_ = 1;  // the next record's sequence
  uint64_t salt_ = 0;      // of the current segment
  // In the current segment: the last record that is known to be on disk, and the later records with
  // their offsets.
  uint64_t durable_ = 0;
  std::deque<std::pair<uint64_t, int64_t>> unproven_;
  LogEnd end_;
};

}  // namespace

absl::StatusOr<LogEnd> ReadPushLog(
    FileSystem& files, const std::string& directory, const LogIdentity& identity,
    absl::FunctionRef<absl::Status(const LogRecord& record, const FramePayload& payload)> visit) {
  return Reading(files, directory, identity, visit).Run();
}

namespace {

// Returns the count in a name such as "log-0-of-2", here 2; 0 for other names.
int GetCount(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  int index = 0;
  int count = 0;
  if (parts.size() != 4 || parts[0] != "log" || parts[2] != "of" ||
      !absl::SimpleAtoi(parts[1], &index) || !absl::SimpleAtoi(parts[3], &count)) {
    return 0;
  }
  return count;
}

// True if the segment belongs to this job and may contain records. Also true if the header is
// damaged.
absl::StatusOr<bool> HasRecords(FileSystem& files, const std::string& path, uint64_t job_id) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenForReading(path);
  if (absl::IsNotFound(file.status())) return false;  // the server that owns the log is removing it
  if (!file.ok()) return file.status();
  if ((*file)->size() <= static_cast<int64_t>(kLogSegmentHeaderBytes)) return false;
  char bytes[kLogSegmentHeaderBytes];
  if (absl::Status read = (*file)->ReadAt(0, absl::MakeSpan(bytes)); !read.ok()) return read;
  const absl::StatusOr<LogSegmentHeader> header = ReadLogSegmentHeader(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes), sizeof(bytes)));
  return !header.ok() || header->identity.job_id == job_id;
}

}  // namespace

absl::Status CheckLogsOfOtherCounts(FileSystem& files, const std::string& directory,
                                    uint64_t job_id, int server_count) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const int count = GetCount(name);
    if (count == 0 || count == server_count) continue;
    const std::string log = absl::StrCat(directory, "/", name);
    const absl::StatusOr<std::vector<std::string>> segments = files.List(log);
    if (!segments.ok()) return segments.status();
    for (const std::string& segment : *segments) {
      if (!LogSegmentNumber(segment).has_value()) continue;
      const absl::StatusOr<bool> has = HasRecords(files, absl::StrCat(log, "/", segment), job_id);
      if (!has.ok()) return has.status();
      if (*has) {
        return absl::FailedPreconditionError(absl::StrCat(
            log, " contains pushes of this job from a run with ", count,
            " servers, but this run has ", server_count, "; start the job on ", count,
            " servers, take a checkpoint, and stop it before you continue with ", server_count));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace torchps
