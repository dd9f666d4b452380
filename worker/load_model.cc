#include "worker/load_model.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "checkpoint/safetensors_reader.h"
#include "storage/file_system.h"
#include "worker/state_file.h"

namespace torchps {

absl::StatusOr<Preprocessing> LoadModel(torch::nn::Module& module, const std::string& path) {
  const std::string file = MakeModelFile(path);
  if (absl::Status loaded = LoadState(module, file); !loaded.ok()) return loaded;
  const absl::StatusOr<Preprocessing::Metadata> metadata = GetMetadata(file);
  if (!metadata.ok()) return metadata.status();
  return Preprocessing::FromMetadata(*metadata);
}

std::string MakeModelFile(const std::string& path) {
  std::error_code unknown;
  const bool is_folder = std::filesystem::is_directory(path, unknown);
  return is_folder ? absl::StrCat(path, "/model.safetensors") : path;
}

absl::StatusOr<Preprocessing::Metadata> GetMetadata(const std::string& path) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const auto file = files->OpenForReading(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<bool> has_metadata = LooksLikeSafetensors(**file);
  if (!has_metadata.ok()) return has_metadata.status();
  if (!*has_metadata) return Preprocessing::Metadata();
  const auto reader = SafetensorsReader::Open(files.get(), path);
  if (!reader.ok()) return reader.status();
  return (*reader)->metadata();
}

}  // namespace torchps
