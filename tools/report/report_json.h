#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/report.pb.h"

namespace torchps {

// The report as indented JSON (docs/operate.md), ending in a newline.
//
// Protobuf prints it. Its mapping makes strings of 64-bit integers and of numbers that are not
// finite, and knows no null; a report's readers are promised numbers and null. One pass over the
// descriptor mends that for whatever fields there are. Counts of type double would be numbers
// without it, but not exact ones, and null would still be missing.
std::string ReportJson(const Report& report);

// Returns the report that ReportJson() has written: equal up to the digits that the JSON leaves
// out, and to fields of a newer version. A number that was not finite is NaN. DATA_LOSS: it is no
// report.
absl::StatusOr<Report> ParseReportJson(const std::string& text);

// Writes `text` to `path` so that whoever opens it sees the old file or the whole new one: beside
// it, then renamed. PERMISSION_DENIED or NOT_FOUND or RESOURCE_EXHAUSTED with the path and the
// system's reason.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace torchps
