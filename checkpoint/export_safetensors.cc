#include "checkpoint/export_safetensors.h"

#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "checkpoint/model_values.h"
#include "checkpoint/safetensors_writer.h"

namespace torchps {

absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const CheckpointReader& reader) {
  const std::map<std::string, std::string> metadata = {
      {"format", "pt"},  // what other programs expect of tensors that are PyTorch's
      {"job", reader.manifest().job().name()},
      {"checkpoint", absl::StrCat(reader.manifest().checkpoint())},
  };
  SafetensorsHeader plan;
  plan.metadata = metadata;
  for (const Segment& segment : reader.layout().segments()) {
    constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();
    plan.tensors.push_back({segment.name, Dtype::kF32, segment.shape, kLongest, kLongest});
  }
  auto writer = SafetensorsWriter::Create(
      files, path, static_cast<int64_t>(FormatSafetensorsHeader(plan).size()));
  if (!writer.ok()) return writer.status();
  ModelValues values(&reader);
  for (const Segment& segment : reader.layout().segments()) {
    (*writer)->BeginTensor(segment.name, Dtype::kF32, segment.shape);
    const absl::Status status = values.Read(segment, [&](absl::Span<const float> piece) {
      return (*writer)->Append(
          {reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(float)});
    });
    if (!status.ok()) return status;
  }
  return (*writer)->Finish(metadata).status();
}

}  // namespace torchps
