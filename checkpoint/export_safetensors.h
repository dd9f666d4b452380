#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint/exported_model.h"
#include "storage/file_system.h"

namespace torchps {

// Writes the model as a safetensors file with the module's tensor names. Replaces a file at `path`
// only when the new file is complete. Returns the errors of FileSystem and `model`.
absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const ExportedModel& model);

}  // namespace torchps
