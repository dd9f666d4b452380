#include "torchps/worker/state_file.h"

#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/checkpoint/safetensors.h"
#include "torchps/storage/file_system.h"
#include "torchps/worker/state_sources.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

constexpr int64_t kLengthBytes = 8;
// Bytes. The data begin at a multiple of this in the file, so that the tensors of a memory-mapped
// file are aligned.
constexpr size_t kAlignment = 64;
constexpr size_t kPieceBytes = 1 << 20;
// The maximum number of names that a message lists per kind of difference.
constexpr size_t kMaxNames = 4;

using Named = std::pair<std::string, torch::Tensor>;

// Returns parameters, then buffers, under all their names, in registration order.
std::vector<Named> ReadState(const torch::nn::Module& module) {
  std::vector<Named> state;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) state.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) state.emplace_back(item.key(), item.value());
  }
  return state;
}

absl::string_view GetBytes(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

std::vector<int64_t> GetShape(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

// Returns, for example, "[3, 4] of Float".
std::string Describe(const std::vector<int64_t>& shape, torch::ScalarType type) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "] of ", torch::toString(type));
}

std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> told(names.begin(), names.begin() + std::min(names.size(), kMaxNames));
  std::string text = absl::StrCat("'", absl::StrJoin(told, "', '"), "'");
  if (names.size() > told.size()) {
    absl::StrAppend(&text, " and ", names.size() - told.size(), " more");
  }
  return text;
}

// Returns the reason why the file's tensor does not fit the module's, or "".
std::string Misfit(const std::string& name, const StateSource& source,
                   const torch::Tensor& tensor) {
  if (!source.type.has_value()) {
    return absl::StrCat("'", name, "' is of dtype ", source.other_dtype,
                        ", which torchps cannot load; convert it to float32 in Python");
  }
  const bool fits = source.shape == GetShape(tensor) &&
                    (!torch::isComplexType(*source.type) || tensor.is_complex());
  if (fits) return "";
  return absl::StrCat("'", name, "' is ", Describe(source.shape, *source.type), " in the file and ",
                      Describe(GetShape(tensor), tensor.scalar_type()), " in the module");
}

std::string ShardHint(const std::string& path) {
  return absl::StrContains(path, "-of-0")
             ? "it may be one shard of several: load the .index.json file in the same folder"
             : "";
}

// Names that only the file or only the module has, and faults of tensors that both have.
struct Differences {
  std::vector<std::string> missing;  // not in the file
  std::vector<std::string> extra;    // not in the module
  std::vector<std::string> skipped;  // not in the module, with a dtype that torchps cannot load
  std::vector<std::string> misfits;
};

Differences Compare(const std::vector<Named>& state, const StateSources& sources) {
  Differences found;
  std::set<std::string> known;
  for (const auto& [name, tensor] : state) {
    known.insert(name);
    const auto source = sources.find(name);
    if (source == sources.end()) {
      found.missing.push_back(name);
    } else if (std::string misfit = Misfit(name, source->second, tensor); !misfit.empty()) {
      found.misfits.push_back(std::move(misfit));
    }
  }
  for (const auto& [name, source] : sources) {
    if (known.count(name) > 0) continue;
    (source.type.has_value() ? found.extra : found.skipped).push_back(name);
  }
  return found;
}

std::set<std::string> GetNames(const std::vector<Named>& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state) names.insert(name);
  return names;
}

std::set<std::string> GetNames(const StateSources& sources) {
  std::set<std::string> names;
  for (const auto& [name, source] : sources) names.insert(name);
  return names;
}

absl::Status CheckFit(const std::vector<Named>& state, const StateSources& sources,
                      const std::string& path, Match match, std::vector<std::string>* unmatched) {
  Differences found = Compare(state, sources);
  if (unmatched != nullptr) {
    unmatched->insert(unmatched->end(), found.missing.begin(), found.missing.end());
    unmatched->insert(unmatched->end(), found.extra.begin(), found.extra.end());
    unmatched->insert(unmatched->end(), found.skipped.begin(), found.skipped.end());
  }
  std::vector<std::string> faults;
  const bool nothing = found.missing.size() == state.size() && !state.empty();
  if (match == Match::kAll || nothing) {
    if (!found.missing.empty()) {
      faults.push_back(absl::StrCat("it lacks ", Names(found.missing)));
    }
    if (!found.extra.empty()) {
      faults.push_back(absl::StrCat("it has ", Names(found.extra), ", which the module lacks"));
    }
    std::string hint = found.missing.empty() ? "" : PrefixHint(GetNames(state), GetNames(sources));
    if (hint.empty() && !found.missing.empty()) hint = ShardHint(path);
    if (!hint.empty()) faults.push_back(std::move(hint));
  }
  if (!found.misfits.empty()) {
    const size_t more = found.misfits.size() - std::min(found.misfits.size(), kMaxNames);
    found.misfits.resize(found.misfits.size() - more);
    faults.push_back(absl::StrCat(absl::StrJoin(found.misfits, "; "),
                                  more > 0 ? absl::StrCat("; and ", more, " more") : ""));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " does not fit the module: ", absl::StrJoin(faults, "; ")));
}

absl::StatusOr<StateSources> Open(FileSystem* files, const std::string& path) {
  try {
    return OpenState(files, path);
  } catch (const std::exception& error) {
    return absl::DataLossError(
        absl::StrCat(path, " is not a state_dict: ", TorchError("reading it", error).message(),
                     "; expected the file of Python's torch.save(module.state_dict(), file)"));
  }
}

// INVALID_ARGUMENT if converting `loaded` to `type` changes a value, except by rounding a
// floating-point number to another floating-point type.
absl::Status CheckConversion(const std::string& name, const torch::Tensor& loaded,
                             torch::ScalarType type, const std::string& path) {
  const torch::ScalarType from = loaded.scalar_type();
  const auto is_rounded = [](torch::ScalarType t) {
    return torch::isFloatingType(t) || torch::isComplexType(t);
  };
  if (from == type || (is_rounded(from) && is_rounded(type)) ||
      loaded.to(type).to(from).equal(loaded)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, " does not fit the module: '", name, "' has numbers of ", torch::toString(from),
      " that ", torch::toString(type), ", the module's type, cannot hold"));
}

}  // namespace

std::map<std::string, std::string> TiedNames(const torch::nn::Module& module) {
  std::map<const void*, std::string> first;
  std::map<std::string, std::string> tied;
  for (const auto& [name, tensor] : ReadState(module)) {
    const auto [found, is_new] = first.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) tied[name] = found->second;
  }
  return tied;
}

absl::StatusOr<StateFile> StateFile::Of(
    const torch::nn::Module& module, std::map<std::string, std::string> metadata,
    const std::function<bool(const std::string& name)>& wanted) {
  std::vector<std::pair<TensorInfo, torch::Tensor>> found;
  for (const auto& [name, tensor] : ReadState(module)) {
    if (wanted != nullptr && !wanted(name)) continue;
    const absl::StatusOr<Dtype> dtype = GetFileDtype(name, tensor);
    if (!dtype.ok()) return dtype.status();
    found.push_back({{name, *dtype, GetShape(tensor)}, tensor});
  }
  // Places large elements first, so that each tensor is aligned to the element size.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return DtypeBytes(a.first.dtype) > DtypeBytes(b.first.dtype);
  });
  StateFile file;
  SafetensorsHeader header;
  metadata["format"] = "pt";  // other programs expect this for PyTorch's tensors
  header.metadata = std::move(metadata);
  int64_t end = 0;
  for (auto& [info, tensor] : found) {
    info.begin = end;
    end += static_cast<int64_t>(tensor.nbytes());
    info.end = end;
    header.tensors.push_back(std::move(info));
    file.tensors_.push_back(tensor);
  }
  std::string json = FormatSafetensorsHeader(header);
  json.resize(
      (json.size() + kLengthBytes + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  const uint64_t length = json.size();
  file.header_.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  file.header_ += json;
  file.bytes_ = static_cast<int64_t>(file.header_.size()) + end;
  return file;
}

absl::Status StateFile::Read(size_t most, const Sink& sink) const {
  int64_t offset = 0;
  const auto hand_out = [&](absl::string_view bytes) -> absl::Status {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(most, bytes.size()))) {
      const absl::string_view piece = bytes.substr(0, most);
      if (absl::Status status = sink(offset, piece); !status.ok()) return status;
      offset += static_cast<int64_t>(piece.size());
    }
    return absl::OkStatus();
  };
  if (absl::Status status = hand_out(header_); !status.ok()) return status;
  try {
    for (const torch::Tensor& tensor : tensors_) {
      // A conjugate or negative view shares the bytes of the original tensor, so it must be
      // resolved.
      const torch::Tensor here = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
      if (absl::Status status = hand_out(GetBytes(here)); !status.ok()) return status;
    }
  } catch (const std::exception& error) {
    return TorchError("reading the module's tensors", error);
  }
  return absl::OkStatus();
}

absl::Status SaveState(const torch::nn::Module& module, const std::string& path,
                       std::map<std::string, std::string> metadata) {
  const absl::StatusOr<StateFile> state = StateFile::Of(module, std::move(metadata));
  if (!state.ok()) return state.status();
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const std::string temporary = TemporaryPath(path);
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files->CreateFile(temporary);
  if (!file.ok()) return file.status();
  absl::Status status = state->Read(
      kPieceBytes, [&](int64_t, absl::string_view piece) { return (*file)->Append(piece); });
  if (status.ok()) status = (*file)->Sync();
  if (absl::Status closed = (*file)->Close(); status.ok()) status = closed;
  if (status.ok()) status = files->Rename(temporary, path);
  if (!status.ok()) {
    files->RemoveFile(temporary).IgnoreError();
    return status;
  }
  return files->SyncDirectory(ParentDirectory(path));
}

absl::Status LoadState(torch::nn::Module& module, const std::string& path, Match match,
                       std::vector<std::string>* unmatched) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const absl::StatusOr<StateSources> sources = Open(files.get(), path);
  if (!sources.ok()) return sources.status();
  const std::vector<Named> state = ReadState(module);
  if (absl::Status fit = CheckFit(state, *sources, path, match, unmatched); !fit.ok()) return fit;
  try {
    // Reads the whole file before changing a tensor, because the end of the file may be damaged.
    std::vector<std::pair<torch::Tensor, torch::Tensor>> changes;
    for (const auto& [name, tensor] : state) {
      const auto found = sources->find(name);
      if (found == sources->end()) continue;
      absl::StatusOr<torch::Tensor> loaded = found->second.read();
      if (!loaded.ok()) return loaded.status();
      const absl::Status exact = CheckConversion(name, *loaded, tensor.scalar_type(), path);
      if (!exact.ok()) return exact;
      changes.emplace_back(tensor, *std::move(loaded));
    }
    const torch::NoGradGuard no_grad;
    for (auto& [tensor, loaded] : changes) {
      tensor.copy_(loaded);
      loaded = torch::Tensor();
    }
  } catch (const std::exception& error) {
    return TorchError(absl::StrCat("loading ", path), error);
  }
  return absl::OkStatus();
}

}  // namespace torchps
