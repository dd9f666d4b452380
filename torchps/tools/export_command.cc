#include "torchps/tools/export_command.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/checkpoint_reader.h"
#include "torchps/checkpoint/exported_model.h"
#include "torchps/common/process/command_line.h"
#include "torchps/storage/file_system.h"
#include "torchps/storage/run_folder.h"
#include "torchps/tools/base/format.h"

namespace torchps {
namespace {

constexpr char kCheckpointName[] = "checkpoint-";

absl::Status CheckOut(const std::vector<std::string>& paths) {
  if (paths.empty()) {
    return absl::InvalidArgumentError(
        "psctl export needs --out=FILE, a name that ends in .safetensors");
  }
  for (const std::string& path : paths) {
    if (absl::EndsWith(path, ".safetensors")) continue;
    std::string sentence =
        absl::StrCat("--out is '", path, "'; expected a name that ends in .safetensors");
    if (absl::EndsWith(path, ".pt") || absl::EndsWith(path, ".pth")) {
      const std::string stem = path.substr(0, path.rfind('.'));
      absl::StrAppend(&sentence, ", which Python converts: import torch, safetensors.torch; ",
                      "torch.save(safetensors.torch.load_file('", stem, ".safetensors'), '", path,
                      "')");
    }
    return absl::InvalidArgumentError(sentence);
  }
  return absl::OkStatus();
}

// Opens checkpoint `number` with all shards, or the newest loadable checkpoint if `number` is 0.
// Reports newer checkpoints that cannot be loaded to `error`.
absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenCheckpoint(
    FileSystem* files, const std::vector<std::string>& directories, uint64_t number,
    std::ostream& error) {
  std::unique_ptr<CheckpointReader> reader;
  const auto open = [&](const Manifest& manifest) -> absl::Status {
    const absl::StatusOr<ManifestBlocks> cut = GetBlocks(manifest);
    if (!cut.ok()) return cut.status();
    auto opened = CheckpointReader::Open(files, directories, manifest, cut->blocks.blocks());
    if (!opened.ok()) return opened.status();
    reader = *std::move(opened);
    return absl::OkStatus();
  };
  const CheckpointDirectory place(files, directories[0]);
  std::error_code ignored;
  if (!std::filesystem::is_directory(directories[0], ignored)) {
    return absl::NotFoundError(absl::StrCat("there is no folder ", directories[0],
                                            "; --dir takes a run's folder or a checkpoint in it"));
  }
  if (number != 0) {
    const absl::StatusOr<std::vector<uint64_t>> complete = place.Complete();
    if (complete.ok() && !complete->empty() && !absl::c_linear_search(*complete, number)) {
      return absl::NotFoundError(absl::StrCat("there is no checkpoint ", number, " in ",
                                              directories[0], ", which has ",
                                              absl::StrJoin(*complete, ", ")));
    }
    const absl::StatusOr<Manifest> manifest = place.ReadManifest(number);
    if (!manifest.ok()) return manifest.status();
    if (absl::Status status = open(*manifest); !status.ok()) return status;
    return reader;
  }
  std::vector<std::string> passed_over;
  const absl::Status status = place.Newest(open, &passed_over).status();
  if (!status.ok()) return status;
  for (const std::string& sentence : passed_over) error << "psctl: " << sentence << std::endl;
  return reader;
}

// Returns the checkpoint folder of a run folder or of a server's --dir.
std::string CheckpointsIn(const std::string& directory) {
  const std::string state = StateDirectory(directory);
  std::error_code unknown;
  return std::filesystem::exists(state, unknown) ? state : directory;
}

// Splits a path as reports print it: "DIR/checkpoint-000000000012" is checkpoint 12 in DIR.
void TakeCheckpointPath(std::string* directory, uint64_t* number) {
  while (directory->size() > 1 && directory->back() == '/') directory->pop_back();
  const size_t begin = directory->rfind(kCheckpointName);
  uint64_t named = 0;
  if (begin == std::string::npos || (begin > 0 && (*directory)[begin - 1] != '/') ||
      !absl::SimpleAtoi(directory->substr(begin + sizeof(kCheckpointName) - 1), &named)) {
    return;
  }
  *number = named;
  *directory = begin == 0 ? "." : directory->substr(0, begin - 1);
}

int Fail(const absl::Status& status, ExitCode code, std::ostream& error) {
  error << "psctl: " << status.message() << std::endl;
  return static_cast<int>(code);
}

}  // namespace

std::vector<FlagSpec> ExportFlags() {
  return {
      {"dir", "DIR",
       "A run's folder or a checkpoint in it. If each server has its own directory, repeat the "
       "flag for each; the first one selects the checkpoint. Required.",
       true},
      {"out", "FILE", "The file to write; the name ends in .safetensors. Required.", true},
      {"checkpoint", "N", "The number of the checkpoint. Default: the newest that can be loaded."},
  };
}

int ExportCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  std::vector<std::string> directories = flags.All("dir");
  if (directories.empty()) {
    return Fail(absl::InvalidArgumentError("psctl export needs --dir=DIR"), ExitCode::kUsage,
                error);
  }
  const std::vector<std::string> paths = flags.All("out");
  if (absl::Status status = CheckOut(paths); !status.ok()) {
    return Fail(status, ExitCode::kUsage, error);
  }
  const absl::StatusOr<int64_t> number =
      flags.Integer("checkpoint", 0, 1, std::numeric_limits<int64_t>::max());
  if (!number.ok()) return Fail(number.status(), ExitCode::kUsage, error);

  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  uint64_t wanted = static_cast<uint64_t>(*number);
  for (std::string& directory : directories) {
    const std::string typed = directory;
    const uint64_t before = wanted;
    TakeCheckpointPath(&directory, &wanted);
    directory = CheckpointsIn(directory);
    if (before == 0 || wanted == before) continue;
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    "--dir=", typed, " names checkpoint ", wanted, ", and another --dir or ",
                    "--checkpoint names checkpoint ", before, "; name one")),
                ExitCode::kUsage, error);
  }
  const auto reader = OpenCheckpoint(files.get(), directories, wanted, error);
  if (!reader.ok()) return Fail(reader.status(), ExitCode::kData, error);
  const absl::StatusOr<ExportedModel> model = ExportedModel::OfCheckpoint(
      files.get(), reader->get(), absl::StrCat(directories[0], "/constants.safetensors"));
  if (!model.ok()) return Fail(model.status(), ExitCode::kData, error);
  int64_t bytes = 0;
  for (const ExportedModel::Tensor& tensor : model->tensors()) bytes += tensor.bytes;
  for (const std::string& path : paths) {
    if (absl::Status status = ExportSafetensors(files.get(), path, *model); !status.ok()) {
      return Fail(status, absl::IsDataLoss(status) ? ExitCode::kData : ExitCode::kFailed, error);
    }
    out << "wrote checkpoint " << (*reader)->manifest().checkpoint() << " to " << path << ": "
        << Count(static_cast<int64_t>(model->tensors().size()), "tensor") << ", "
        << FormatBytes(static_cast<double>(bytes)) << std::endl;
  }
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace torchps
