#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint/exported_model.h"
#include "storage/file_system.h"

namespace torchps {

// Writes the same file as Python's torch.save(module.state_dict()): an OrderedDict of tensors with
// the module's tensor names. torch.load reads it, also with weights_only=True. Returns the same
// errors as ExportSafetensors.
absl::Status ExportStateDict(FileSystem* files, const std::string& path,
                             const ExportedModel& model);

}  // namespace torchps
