#pragma once

#include <string>

#include "absl/status/status.h"
#include "checkpoint/exported_model.h"
#include "storage/file_system.h"

namespace torchps {

// Writes the model as the file that Python's torch.save(module.state_dict()) makes: an OrderedDict
// of tensors under the module's own names, which torch.load reads also with weights_only=True.
// Errors as ExportSafetensors.
absl::Status ExportStateDict(FileSystem* files, const std::string& path,
                             const ExportedModel& model);

}  // namespace torchps
