#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/report.pb.h"

namespace torchps {

// Returns the report as indented JSON (docs/operate.md), ending with a newline.
//
// Protobuf's JSON mapping writes 64-bit integers and non-finite numbers as strings, and does not
// use null, but the report's format promises numbers and null. This function corrects the output
// with one pass over the descriptor.
std::string ReportJson(const Report& report);

// Parses the output of ReportJson(). The result is equal except for omitted digits and fields of
// newer versions. Non-finite numbers become NaN. DATA_LOSS: not a report.
absl::StatusOr<Report> ParseReportJson(const std::string& text);

// Writes `text` to a temporary file and renames it to `path`, so that readers see either the old or
// the complete new file. PERMISSION_DENIED, NOT_FOUND or RESOURCE_EXHAUSTED: the message contains
// the path and the system's reason.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace torchps
