#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint/exported_model.h"
#include "storage/file_system.h"

namespace torchps {

// Writes the model as a safetensors file, under the module's own names. Errors are those of
// FileSystem and of the model; what was at `path` stays until the new file is whole.
absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const ExportedModel& model);

}  // namespace torchps
