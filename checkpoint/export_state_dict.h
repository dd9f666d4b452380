#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint/checkpoint_reader.h"
#include "storage/file_system.h"

namespace torchps {

// Writes the model of a checkpoint as the file that Python's torch.save(module.state_dict()) makes:
// an OrderedDict of float32 tensors under the module's own names, which torch.load reads also with
// weights_only=True. REQUIRES: `reader` has all blocks. Errors as ExportSafetensors.
absl::Status ExportStateDict(FileSystem* files, const std::string& path,
                             const CheckpointReader& reader);

}  // namespace torchps
