#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "storage/file_system.h"

namespace torchps {

// A log is of one server of a fixed number of them. FAILED_PRECONDITION says what to do: the
// directory has a log of this job for another number of servers, with records that no checkpoint
// need have. Otherwise the file system's errors.
absl::Status CheckLogsOfOtherCounts(FileSystem& files, const std::string& directory,
                                    uint64_t job_id, int server_count);

}  // namespace torchps
