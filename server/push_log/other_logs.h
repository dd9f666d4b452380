#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "storage/file_system.h"

namespace torchps {

// FAILED_PRECONDITION if the directory contains a log of this job for another number of servers,
// with records that may be missing from checkpoints; the message explains how to continue.
// Otherwise as FileSystem.
absl::Status CheckLogsOfOtherCounts(FileSystem& files, const std::string& directory,
                                    uint64_t job_id, int server_count);

}  // namespace torchps
