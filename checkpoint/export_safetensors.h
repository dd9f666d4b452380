#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint/checkpoint_reader.h"
#include "storage/file_system.h"

namespace torchps {

// Writes the model of a checkpoint as a safetensors file: one tensor of float32 for each parameter
// and averaged buffer, under the module's own name. REQUIRES: `reader` has all blocks. Errors are
// those of FileSystem and of the reader; what was at `path` stays until the new file is whole.
absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const CheckpointReader& reader);

}  // namespace torchps
