#include "worker/state_file.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "checkpoint/pickle/state_dict_pickle.h"
#include "checkpoint/pickle/zip_directory.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_reader.h"
#include "storage/file_system.h"
#include "worker/torch_error.h"

namespace torchps {
namespace {

constexpr int64_t kLengthBytes = 8;
// Data begin at a multiple of this, so that a file that is mapped has aligned tensors.
constexpr size_t kAlignment = 64;
constexpr size_t kPieceBytes = 1 << 20;
// Of each kind of difference, as many names are told.
constexpr size_t kMostNames = 4;

using Named = std::pair<std::string, torch::Tensor>;

std::optional<Dtype> DtypeOf(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kBool:
      return Dtype::kBOOL;
    case torch::kUInt8:
      return Dtype::kU8;
    case torch::kInt8:
      return Dtype::kI8;
    case torch::kInt16:
      return Dtype::kI16;
    case torch::kInt32:
      return Dtype::kI32;
    case torch::kInt64:
      return Dtype::kI64;
    case torch::kFloat16:
      return Dtype::kF16;
    case torch::kBFloat16:
      return Dtype::kBF16;
    case torch::kFloat32:
      return Dtype::kF32;
    case torch::kFloat64:
      return Dtype::kF64;
    default:
      return std::nullopt;
  }
}

torch::ScalarType ScalarTypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBOOL:
      return torch::kBool;
    case Dtype::kU8:
      return torch::kUInt8;
    case Dtype::kI8:
      return torch::kInt8;
    case Dtype::kI16:
      return torch::kInt16;
    case Dtype::kI32:
      return torch::kInt32;
    case Dtype::kI64:
      return torch::kInt64;
    case Dtype::kF16:
      return torch::kFloat16;
    case Dtype::kBF16:
      return torch::kBFloat16;
    case Dtype::kF32:
      return torch::kFloat32;
    case Dtype::kF64:
      return torch::kFloat64;
  }
  return torch::kFloat32;
}

// Parameters, then buffers, each under every name, as they are registered.
std::vector<Named> StateOf(const torch::nn::Module& module) {
  std::vector<Named> state;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) state.emplace_back(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) state.emplace_back(item.key(), item.value());
  }
  return state;
}

absl::string_view BytesOf(const torch::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

std::vector<int64_t> ShapeOf(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

// "[3, 4] of Float"
std::string Describe(const std::vector<int64_t>& shape, torch::ScalarType type) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "] of ", torch::toString(type));
}

std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> told(names.begin(), names.begin() + std::min(names.size(), kMostNames));
  std::string text = absl::StrCat("'", absl::StrJoin(told, "', '"), "'");
  if (names.size() > told.size()) {
    absl::StrAppend(&text, " and ", names.size() - told.size(), " more");
  }
  return text;
}

// What is in a file: a tensor's shape and type, and how to get it.
struct Source {
  std::vector<int64_t> shape;
  torch::ScalarType type = torch::kFloat32;
  std::function<absl::StatusOr<torch::Tensor>()> read;
};
using Sources = std::map<std::string, Source>;

absl::StatusOr<Sources> OpenSafetensors(const std::shared_ptr<SafetensorsReader>& reader) {
  Sources sources;
  for (size_t i = 0; i < reader->tensors().size(); ++i) {
    const TensorInfo& info = reader->tensors()[i];
    const torch::ScalarType type = ScalarTypeOf(info.dtype);
    sources[info.name] = {
        info.shape, type, [reader, i, type]() -> absl::StatusOr<torch::Tensor> {
          torch::Tensor tensor = torch::empty(reader->tensors()[i].shape, type);
          const absl::Status read = reader->Read(
              i, absl::MakeSpan(static_cast<char*>(tensor.data_ptr()), tensor.nbytes()));
          if (!read.ok()) return read;
          return tensor;
        }};
  }
  return sources;
}

using ZipReader = caffe2::serialize::PyTorchStreamReader;

absl::StatusOr<torch::Tensor> ReadPickled(ZipReader& zip, const std::string& path,
                                          const PickledTensor& pickled) {
  const auto [data, bytes] = zip.getRecord(absl::StrCat("data/", pickled.storage));
  if (bytes != static_cast<size_t>(pickled.storage_elements * DtypeBytes(pickled.dtype))) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: the values of '", pickled.name,
                                            "' have ", bytes, " bytes and not ",
                                            pickled.storage_elements, " elements"));
  }
  if (absl::Status valid =
          CheckElements(pickled.dtype, {static_cast<const char*>(data.get()), bytes});
      !valid.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: '", pickled.name, "' ", valid.message()));
  }
  return torch::from_blob(data.get(), {pickled.storage_elements}, ScalarTypeOf(pickled.dtype))
      .as_strided(pickled.shape, pickled.strides, pickled.offset)
      .clone(torch::MemoryFormat::Contiguous);
}

absl::StatusOr<Sources> OpenPickle(FileSystem& files, const std::string& path) {
  const auto refused = [&path](absl::string_view why) {
    return absl::DataLossError(
        absl::StrCat(path, " is no state_dict: ", why,
                     "; expected the file of Python's torch.save(module.state_dict(), file)"));
  };
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files.OpenForReading(path);
  if (!file.ok()) return file.status();
  char first[2] = {};
  if (!(*file)->ReadAt(0, absl::MakeSpan(first)).ok() ||
      absl::string_view(first, sizeof(first)) != "PK") {
    return refused("it is no zip archive, as torch writes since 1.6");
  }
  if (const absl::Status stored = CheckNothingIsCompressed(**file); !stored.ok()) {
    return absl::IsDataLoss(stored) ? refused(stored.message()) : stored;
  }
  try {
    const auto zip = std::make_shared<ZipReader>(path);
    if (zip->hasRecord("constants.pkl")) {
      return refused(
          "it is an archive of C++'s torch::save or of TorchScript (load it into the module with "
          "torch::load, then write it with torchps::SaveState)");
    }
    if (zip->hasRecord("byteorder")) {
      const auto [order, size] = zip->getRecord("byteorder");
      if (absl::string_view(static_cast<const char*>(order.get()), size) != "little") {
        return refused("its numbers are big-endian (load and save it on a machine that is not)");
      }
    }
    const auto [bytes, length] = zip->getRecord("data.pkl");
    const absl::StatusOr<std::vector<PickledTensor>> tensors =
        ParseStateDictPickle({static_cast<const char*>(bytes.get()), length});
    if (!tensors.ok()) return refused(tensors.status().message());
    Sources sources;
    for (const PickledTensor& tensor : *tensors) {
      sources[tensor.name] = {tensor.shape, ScalarTypeOf(tensor.dtype),
                              [zip, path, tensor] { return ReadPickled(*zip, path, tensor); }};
    }
    return sources;
  } catch (const std::exception& error) {
    return refused(TorchError("reading it", error).message());
  }
}

absl::StatusOr<Sources> Open(FileSystem* files, const std::string& path) {
  if (absl::EndsWith(path, ".pt") || absl::EndsWith(path, ".pth")) return OpenPickle(*files, path);
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> reader = SafetensorsReader::Open(files, path);
  if (!reader.ok()) return reader.status();
  return OpenSafetensors(*std::move(reader));
}

absl::Status CheckFit(const std::vector<Named>& state, const Sources& sources,
                      const std::string& path, Match match, std::vector<std::string>* unmatched) {
  std::vector<std::string> missing;
  std::vector<std::string> misshapen;
  std::map<std::string, bool> known;
  for (const auto& [name, tensor] : state) {
    known[name] = true;
    const auto found = sources.find(name);
    if (found == sources.end()) {
      missing.push_back(name);
    } else if (found->second.shape != ShapeOf(tensor) ||
               found->second.type != tensor.scalar_type()) {
      misshapen.push_back(absl::StrCat(
          "'", name, "' is ", Describe(found->second.shape, found->second.type), " there and ",
          Describe(ShapeOf(tensor), tensor.scalar_type()), " in the module"));
    }
  }
  std::vector<std::string> extra;
  for (const auto& [name, source] : sources) {
    if (known.count(name) == 0) extra.push_back(name);
  }
  if (unmatched != nullptr) {
    unmatched->insert(unmatched->end(), missing.begin(), missing.end());
    unmatched->insert(unmatched->end(), extra.begin(), extra.end());
  }
  std::vector<std::string> faults;
  const bool nothing = missing.size() == state.size() && !state.empty();
  if (match == Match::kAll || nothing) {
    if (!missing.empty()) faults.push_back(absl::StrCat("it lacks ", Names(missing)));
    if (!extra.empty()) {
      faults.push_back(absl::StrCat("it has ", Names(extra), ", which the module has not"));
    }
  }
  if (!misshapen.empty()) {
    const size_t more = misshapen.size() - std::min(misshapen.size(), kMostNames);
    misshapen.resize(misshapen.size() - more);
    faults.push_back(absl::StrCat(absl::StrJoin(misshapen, "; "),
                                  more > 0 ? absl::StrCat("; and ", more, " more") : ""));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " does not fit the module: ", absl::StrJoin(faults, "; ")));
}

}  // namespace

std::map<std::string, std::string> TiedNames(const torch::nn::Module& module) {
  std::map<const void*, std::string> first;
  std::map<std::string, std::string> tied;
  for (const auto& [name, tensor] : StateOf(module)) {
    const auto [found, is_new] = first.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) tied[name] = found->second;
  }
  return tied;
}

absl::StatusOr<StateFile> StateFile::Of(
    const torch::nn::Module& module, std::map<std::string, std::string> metadata,
    const std::function<bool(const std::string& name)>& wanted) {
  std::vector<std::pair<TensorInfo, torch::Tensor>> found;
  for (const auto& [name, tensor] : StateOf(module)) {
    if (wanted != nullptr && !wanted(name)) continue;
    const std::optional<Dtype> dtype = DtypeOf(tensor);
    if (tensor.layout() != torch::kStrided || !dtype.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", name, "' cannot be written to a safetensors file: it is ",
          tensor.layout() != torch::kStrided ? "sparse" : torch::toString(tensor.scalar_type())));
    }
    found.push_back({{name, *dtype, ShapeOf(tensor), 0, 0}, tensor});
  }
  // Large elements first, so that each tensor lies at a multiple of its element's size.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return DtypeBytes(a.first.dtype) > DtypeBytes(b.first.dtype);
  });
  StateFile file;
  SafetensorsHeader header;
  metadata["format"] = "pt";  // what other programs expect of tensors that are PyTorch's
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
      const torch::Tensor here = tensor.detach().cpu().contiguous();
      if (absl::Status status = hand_out(BytesOf(here)); !status.ok()) return status;
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
  const absl::StatusOr<Sources> sources = Open(files.get(), path);
  if (!sources.ok()) return sources.status();
  const std::vector<Named> state = StateOf(module);
  if (absl::Status fit = CheckFit(state, *sources, path, match, unmatched); !fit.ok()) return fit;
  try {
    // All is read before anything is changed: only then is it known that the file is whole.
    std::vector<std::pair<torch::Tensor, torch::Tensor>> changes;
    for (const auto& [name, tensor] : state) {
      const auto found = sources->find(name);
      if (found == sources->end()) continue;
      absl::StatusOr<torch::Tensor> loaded = found->second.read();
      if (!loaded.ok()) return loaded.status();
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
