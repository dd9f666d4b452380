#include "torchps/checkpoint/exported_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"

namespace torchps {
namespace {

// Reads the values of a checkpoint tensor by tensor, one block at a time, so memory use does not
// depend on the model size. Not thread-safe; borrows the reader.
class ModelValues {
 public:
  using Sink = std::function<absl::Status(absl::Span<const float> values)>;

  // REQUIRES: `reader` contains all blocks.
  explicit ModelValues(const CheckpointReader* reader) : reader_(*reader) {}

  // Passes the elements of `segment` to the sink in order, one call per block. Returns the first
  // error, including the sink's.
  absl::Status Read(const Segment& segment, const Sink& sink);

 private:
  const CheckpointReader& reader_;
  std::vector<float> values_;  // values of block_
  int64_t block_ = -1;
};

absl::Status ModelValues::Read(const Segment& segment, const Sink& sink) {
  const int64_t end = segment.offset + segment.length;
  for (int64_t offset = segment.offset; offset < end;) {
    const BlockId block = reader_.BlockAt(offset);
    if (block_ != block) {
      block_ = -1;
      if (absl::Status status = reader_.ReadValues(block, &values_); !status.ok()) return status;
      block_ = block;
    }
    const BlockRange& range = reader_.blocks()[block];
    const int64_t length = std::min(end, range.offset + range.length) - offset;
    const absl::Span<const float> piece = absl::MakeConstSpan(values_).subspan(
        static_cast<size_t>(offset - range.offset), static_cast<size_t>(length));
    if (absl::Status status = sink(piece); !status.ok()) return status;
    offset += length;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportedModel> ExportedModel::OfCheckpoint(FileSystem* files,
                                                          const CheckpointReader* reader,
                                                          const std::string& constants) {
  ExportedModel model;
  const JobSpec& job = reader->manifest().job();
  for (const PreprocessingEntry& entry : job.data().preprocessing()) {
    model.metadata_[entry.key()] = entry.value();
  }
  model.metadata_["job"] = job.name();
  model.metadata_["checkpoint"] = absl::StrCat(reader->manifest().checkpoint());
  const auto values = std::make_shared<ModelValues>(reader);
  for (const Segment& segment : reader->layout().segments()) {
    const int64_t bytes = segment.length * static_cast<int64_t>(sizeof(float));
    model.Add({segment.name, Dtype::kF32, segment.shape, bytes}, [values,
                                                                  segment](const Sink& sink) {
      return values->Read(segment, [&sink](absl::Span<const float> piece) {
        return sink({reinterpret_cast<const char*>(piece.data()), piece.size() * sizeof(float)});
      });
    });
  }
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> file =
      SafetensorsReader::Open(files, constants);
  if (absl::IsNotFound(file.status())) return model;
  if (!file.ok()) return file.status();
  const std::shared_ptr<SafetensorsReader> shared = *std::move(file);
  if (absl::Status status = model.AddFile(shared); !status.ok()) return status;
  if (absl::Status status = model.AddTied(*shared); !status.ok()) return status;
  model.SortBySize();
  return model;
}

void ExportedModel::Add(Tensor tensor, Source source) {
  tensors_.push_back(std::move(tensor));
  sources_.push_back(std::move(source));
}

absl::Status ExportedModel::AddFile(const std::shared_ptr<SafetensorsReader>& file) {
  for (size_t i = 0; i < file->tensors().size(); ++i) {
    const TensorInfo& info = file->tensors()[i];
    if (info.dtype == Dtype::kOther) {
      return absl::DataLossError(absl::StrCat(file->path(), " has '", info.name, "' of dtype ",
                                              info.other_dtype, ", which cannot be exported"));
    }
    Add({info.name, info.dtype, info.shape, info.end - info.begin},
        [file, i, bytes = info.end - info.begin](const Sink& sink) {
          std::string contents(static_cast<size_t>(bytes), '\0');
          const absl::Status read = file->Read(i, absl::MakeSpan(&contents[0], contents.size()));
          return read.ok() ? sink(contents) : read;
        });
  }
  return absl::OkStatus();
}

absl::Status ExportedModel::AddTied(const SafetensorsReader& constants) {
  const auto damaged = [&constants](const std::string& what) {
    return absl::DataLossError(
        absl::StrCat(constants.path(), " is damaged or belongs to another model: ", what));
  };
  // Readers of safetensors files refuse duplicate names.
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!place.emplace(tensors_[i].name, i).second) {
      return damaged(absl::StrCat("'", tensors_[i].name, "' is also in the checkpoint"));
    }
  }
  const auto found = constants.metadata().find("tied");
  if (found == constants.metadata().end()) return absl::OkStatus();
  const nlohmann::json tied = nlohmann::json::parse(found->second, nullptr, false);
  if (!tied.is_object()) return damaged("its metadata 'tied' is not a JSON object");
  for (const auto& [name, first] : tied.items()) {
    const auto other = first.is_string() ? place.find(first.get<std::string>()) : place.end();
    if (other == place.end()) {
      return damaged(absl::StrCat("'", name, "' is tied to a missing tensor"));
    }
    if (!place.emplace(name, tensors_.size()).second) {
      return damaged(absl::StrCat("'", name, "' is tied to another tensor, but exists separately"));
    }
    const size_t i = other->second;
    Tensor tensor = tensors_[i];
    tensor.name = name;
    Add(std::move(tensor), sources_[i]);
  }
  return absl::OkStatus();
}

void ExportedModel::SortBySize() {
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    return DtypeBytes(tensors_[a].dtype) > DtypeBytes(tensors_[b].dtype);
  });
  std::vector<Tensor> tensors;
  std::vector<Source> sources;
  for (const size_t i : order) {
    tensors.push_back(std::move(tensors_[i]));
    sources.push_back(std::move(sources_[i]));
  }
  tensors_ = std::move(tensors);
  sources_ = std::move(sources);
}

absl::Status ExportedModel::Read(size_t i, const Sink& sink) const { return sources_[i](sink); }

absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const ExportedModel& model) {
  SafetensorsHeader plan;
  plan.metadata = model.metadata();
  plan.metadata["format"] = "pt";  // "pt" marks PyTorch tensors; some readers require it
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
