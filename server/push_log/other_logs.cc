#include "server/push_log/other_logs.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/push_log/log_segment.h"

namespace torchps {
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

// True if the segment belongs to this job and may contain records. Also true if it cannot be read.
absl::StatusOr<bool> HasRecords(FileSystem& files, const std::string& path, uint64_t job_id) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenForReading(path);
  if (absl::IsNotFound(file.status())) return false;  // its server is removing it
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
