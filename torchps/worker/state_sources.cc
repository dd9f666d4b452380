#include "torchps/worker/state_sources.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "torchps/checkpoint/pickle/state_dict_pickle.h"
#include "torchps/checkpoint/pickle/zip_directory.h"
#include "torchps/checkpoint/safetensors_file.h"

namespace torchps {
namespace {

struct Prefix {
  std::string text;
  size_t names = 0;  // matching names after removing the prefix
};

// Returns the prefix that makes the most names in `longer` match `shorter` when removed.
Prefix BestPrefix(const std::set<std::string>& longer, const std::set<std::string>& shorter) {
  std::map<std::string, size_t> matches;
  for (const std::string& name : longer) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      if (shorter.count(name.substr(dot + 1)) > 0) ++matches[name.substr(0, dot + 1)];
    }
  }
  Prefix best;
  for (const auto& [prefix, names] : matches) {
    if (names > best.names) best = {prefix, names};
  }
  return best;
}

}  // namespace

std::string PrefixHint(const std::set<std::string>& module, const std::set<std::string>& file) {
  const auto matching = static_cast<size_t>(
      std::count_if(module.begin(), module.end(),
                    [&file](const std::string& name) { return file.count(name) > 0; }));
  const Prefix surplus = BestPrefix(file, module);
  const Prefix lacking = BestPrefix(module, file);
  const bool remove = surplus.names >= lacking.names;
  const Prefix& best = remove ? surplus : lacking;
  if (best.names <= matching || 2 * best.names < std::min(module.size(), file.size())) return "";
  return absl::StrCat(remove ? "without" : "with", " the prefix '", best.text, "' ", best.names,
                      " of the file's names fit; rename them in Python and save again: state = {",
                      remove ? absl::StrCat("k.removeprefix('", best.text, "')")
                             : absl::StrCat("'", best.text, "' + k"),
                      ": v for k, v in state.items()",
                      remove ? absl::StrCat(" if k.startswith('", best.text, "')") : "", "}");
}

namespace {

struct TypePair {
  Dtype dtype;
  torch::ScalarType type;
};

constexpr TypePair kTypes[] = {
    {Dtype::kBOOL, torch::kBool},        {Dtype::kU8, torch::kUInt8},
    {Dtype::kI8, torch::kInt8},          {Dtype::kI16, torch::kInt16},
    {Dtype::kI32, torch::kInt32},        {Dtype::kI64, torch::kInt64},
    {Dtype::kF16, torch::kFloat16},      {Dtype::kBF16, torch::kBFloat16},
    {Dtype::kF32, torch::kFloat32},      {Dtype::kF64, torch::kFloat64},
    {Dtype::kC64, torch::kComplexFloat}, {Dtype::kC128, torch::kComplexDouble},
};

}  // namespace

absl::StatusOr<Dtype> GetFileDtype(const std::string& name, const torch::Tensor& tensor) {
  const bool is_dense = tensor.layout() == torch::kStrided;
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&tensor](const TypePair& pair) { return pair.type == tensor.scalar_type(); });
  if (is_dense && found != std::end(kTypes)) return found->dtype;
  const absl::string_view kind = is_dense ? torch::toString(tensor.scalar_type()) : "sparse";
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is ", kind, ", and a model file holds dense numbers only; register it dense, ",
      "or keep it in a member that is not registered"));
}

std::optional<torch::ScalarType> GetScalarType(Dtype dtype) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [dtype](const TypePair& pair) { return pair.dtype == dtype; });
  if (found == std::end(kTypes)) return std::nullopt;
  return found->type;
}

namespace {

using Json = nlohmann::json;
using ZipReader = caffe2::serialize::PyTorchStreamReader;

constexpr int64_t kMaxIndexBytes = 64 << 20;

absl::Status Refused(const std::string& path, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat(path, " is not a state_dict: ", why,
                   "; expected the file of Python's torch.save(module.state_dict(), file)"));
}

absl::StatusOr<StateSources> OpenSafetensors(FileSystem* files, const std::string& path) {
  auto opened = SafetensorsReader::Open(files, path);
  if (!opened.ok()) return opened.status();
  const std::shared_ptr<SafetensorsReader> reader = *std::move(opened);
  StateSources sources;
  for (size_t i = 0; i < reader->tensors().size(); ++i) {
    const TensorInfo& info = reader->tensors()[i];
    const std::optional<torch::ScalarType> type = GetScalarType(info.dtype);
    sources[info.name] = {
        info.shape, type, info.other_dtype, [reader, i, type]() -> absl::StatusOr<torch::Tensor> {
          torch::Tensor tensor = torch::empty(reader->tensors()[i].shape, *type);
          const absl::Status read = reader->Read(
              i, absl::MakeSpan(static_cast<char*>(tensor.data_ptr()), tensor.nbytes()));
          if (!read.ok()) return read;
          return tensor;
        }};
  }
  return sources;
}

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
  return torch::from_blob(data.get(), {pickled.storage_elements}, *GetScalarType(pickled.dtype))
      .as_strided(pickled.shape, pickled.strides, pickled.offset)
      .clone(torch::MemoryFormat::Contiguous);
}

absl::Status CheckArchive(ZipReader& zip, const std::string& path) {
  if (zip.hasRecord("constants.pkl")) {
    return Refused(
        path,
        "it is an archive of C++'s torch::save or of TorchScript (load it into the module with "
        "torch::load, then write it with torchps::SaveState)");
  }
  if (!zip.hasRecord("data.pkl")) return Refused(path, "its zip archive has no data.pkl");
  if (!zip.hasRecord("byteorder")) return absl::OkStatus();
  const auto [order, size] = zip.getRecord("byteorder");
  if (absl::string_view(static_cast<const char*>(order.get()), size) == "little") {
    return absl::OkStatus();
  }
  return Refused(path, "its numbers are big-endian (load and save it on a little-endian machine)");
}

absl::StatusOr<StateSources> OpenZip(const ReadableFile& file, const std::string& path) {
  if (const absl::Status stored = CheckNothingIsCompressed(file); !stored.ok()) {
    return absl::IsDataLoss(stored) ? Refused(path, stored.message()) : stored;
  }
  const auto zip = std::make_shared<ZipReader>(path);
  if (absl::Status readable = CheckArchive(*zip, path); !readable.ok()) return readable;
  const auto [bytes, length] = zip->getRecord("data.pkl");
  const absl::StatusOr<std::vector<PickledTensor>> tensors =
      ParseStateDictPickle({static_cast<const char*>(bytes.get()), length}, file.size());
  if (!tensors.ok()) return Refused(path, tensors.status().message());
  StateSources sources;
  for (const PickledTensor& tensor : *tensors) {
    sources[tensor.name] = {tensor.shape, GetScalarType(tensor.dtype), tensor.other_dtype,
                            [zip, path, tensor] { return ReadPickled(*zip, path, tensor); }};
  }
  return sources;
}

enum class Format { kSafetensors, kZip, kPickle, kJson, kPointer, kOther };

absl::StatusOr<Format> GetFormat(const ReadableFile& file, const std::string& path) {
  const absl::StatusOr<bool> is_safetensors = LooksLikeSafetensors(file);
  if (!is_safetensors.ok()) return is_safetensors.status();
  if (*is_safetensors) return Format::kSafetensors;
  char head[16] = {};
  const auto size = static_cast<size_t>(std::min<int64_t>(file.size(), sizeof(head)));
  if (absl::Status read = file.ReadAt(0, absl::MakeSpan(head, size)); !read.ok()) return read;
  const absl::string_view text(head, size);
  if (absl::StartsWith(text, "PK\3\4")) return Format::kZip;
  if (size > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) return Format::kPickle;
  if (absl::StartsWith(text, "version https://")) return Format::kPointer;
  // Lets the safetensors reader report the fault of a damaged file.
  if (absl::EndsWith(path, ".safetensors")) return Format::kSafetensors;
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != absl::string_view::npos && text[first] == '{' ? Format::kJson : Format::kOther;
}

// Opens a file of any format except an index.
absl::StatusOr<StateSources> OpenFile(FileSystem* files, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files->OpenForReading(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<Format> format = GetFormat(**file, path);
  if (!format.ok()) return format.status();
  switch (*format) {
    case Format::kSafetensors:
      return OpenSafetensors(files, path);
    case Format::kZip:
      return OpenZip(**file, path);
    case Format::kPickle:
      return Refused(
          path, absl::StrCat("it is a pickle without a zip archive, as torch wrote before 1.6; "
                             "save it again with a recent torch: torch.save(torch.load('",
                             path, "', map_location='cpu'), '", path, "')"));
    case Format::kPointer:
      return Refused(path, "it is a pointer of Git LFS; fetch the file itself with git lfs pull");
    case Format::kJson:
      return Refused(path, "it is JSON");
    case Format::kOther:
      break;
  }
  return Refused(path, "it is neither a zip archive nor a safetensors file");
}

absl::StatusOr<Json> ParseIndex(FileSystem* files, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(*files, path, kMaxIndexBytes);
  if (!text.ok()) return text.status();
  const Json index = Json::parse(*text, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::DataLossError(absl::StrCat(
        path,
        " is JSON but not an index of shards; expected an object 'weight_map' of file names"));
  }
  return index["weight_map"];
}

absl::StatusOr<StateSources> OpenIndex(FileSystem* files, const std::string& path) {
  const absl::StatusOr<Json> weight_map = ParseIndex(files, path);
  if (!weight_map.ok()) return weight_map.status();
  std::map<std::string, StateSources> shards;
  StateSources sources;
  for (const auto& [name, file] : weight_map->items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    if (shard.empty() || absl::StrContains(shard, '/')) {
      return absl::DataLossError(absl::StrCat(path, " is not an index of shards: '", name,
                                              "' must name a file in the folder of the index"));
    }
    const auto [opened, is_new] = shards.try_emplace(shard);
    if (is_new) {
      auto contents = OpenFile(files, absl::StrCat(ParentDirectory(path), "/", shard));
      if (absl::IsNotFound(contents.status())) {
        return absl::NotFoundError(
            absl::StrCat(path, " names a shard: ", contents.status().message()));
      }
      if (!contents.ok()) return contents.status();
      opened->second = *std::move(contents);
    }
    const auto found = opened->second.find(name);
    if (found == opened->second.end()) {
      return absl::DataLossError(absl::StrCat(path, " places '", name, "' in the shard ", shard,
                                              ", which lacks it; download both again"));
    }
    sources[name] = found->second;
  }
  return sources;
}

}  // namespace

absl::StatusOr<StateSources> OpenState(FileSystem* files, const std::string& path) {
  const absl::StatusOr<std::unique_ptr<ReadableFile>> file = files->OpenForReading(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<Format> format = GetFormat(**file, path);
  if (!format.ok()) return format.status();
  return *format == Format::kJson ? OpenIndex(files, path) : OpenFile(files, path);
}

}  // namespace torchps
