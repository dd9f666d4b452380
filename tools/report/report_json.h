#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/report/report.h"

namespace torchps {

// The report as indented JSON, schema 1 (docs/report.md), ending in a newline.
std::string ReportJson(const Report& report);

// Writes `text` to `path` so that whoever opens it sees the old file or the whole new one: beside
// it, then renamed. PERMISSION_DENIED or NOT_FOUND or RESOURCE_EXHAUSTED with the path and the
// system's reason.
absl::Status WriteFileAtomically(const std::string& path, const std::string& text);

}  // namespace torchps
