#include "checkpoint/export_safetensors.h"

#include <limits>
#include <map>

#include "checkpoint/safetensors_writer.h"

namespace torchps {

absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const ExportedModel& model) {
  SafetensorsHeader plan;
  plan.metadata = model.metadata();
  plan.metadata["format"] = "pt";  // expected by readers of PyTorch tensors
  for (const ExportedModel::Tensor& tensor : model.tensors()) {
    constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();
    plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, kLongest, kLongest});
  }
  auto writer = SafetensorsWriter::Create(
      files, path, static_cast<int64_t>(FormatSafetensorsHeader(plan).size()));
  if (!writer.ok()) return writer.status();
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const ExportedModel::Tensor& tensor = model.tensors()[i];
    (*writer)->BeginTensor(tensor.name, tensor.dtype, tensor.shape);
    const absl::Status status =
        model.Read(i, [&](absl::string_view bytes) { return (*writer)->Append(bytes); });
    if (!status.ok()) return status;
  }
  return (*writer)->Finish(plan.metadata).status();
}

}  // namespace torchps
