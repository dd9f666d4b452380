#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_reader.h"
#include "storage/file_system.h"

namespace torchps {

// The tensors of a module's state_dict, for export to another file format. They come from a
// checkpoint and the tensors that servers do not hold (constants.safetensors), or from a model
// file. Tensors of any size pass through a block of memory. Not thread-safe.
class ExportedModel {
 public:
  struct Tensor {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    int64_t bytes = 0;
  };

  // Takes the checkpoint's parameters and averaged buffers, and the tensors of `constants` if that
  // file exists. Borrows `files` and `reader`. REQUIRES: `reader` has all blocks. DATA_LOSS: the
  // file is damaged, or of another model.
  static absl::StatusOr<ExportedModel> OfCheckpoint(FileSystem* files,
                                                    const CheckpointReader* reader,
                                                    const std::string& constants);

  // The tensors of a safetensors file. Borrows `files`.
  static absl::StatusOr<ExportedModel> OfFile(FileSystem* files, const std::string& path);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Passes all bytes of tensor i to the sink, in order and in pieces. Returns the first error, the
  // sink's included.
  using Sink = std::function<absl::Status(absl::string_view bytes)>;
  absl::Status Read(size_t i, const Sink& sink) const;

 private:
  using Source = std::function<absl::Status(const Sink& sink)>;

  ExportedModel() = default;
  void Add(Tensor tensor, Source source);
  // DATA_LOSS: a tensor has a dtype that torchps does not read.
  absl::Status AddFile(const std::shared_ptr<SafetensorsReader>& file);
  // Adds each tied tensor under its further names, which the metadata of `constants` list.
  // DATA_LOSS: a name would occur twice.
  absl::Status AddTied(const SafetensorsReader& constants);
  // Large elements first, so that each tensor lies at a multiple of its element's size.
  void SortBySize();

  std::vector<Tensor> tensors_;
  std::vector<Source> sources_;  // of each
  std::map<std::string, std::string> metadata_;
};

}  // namespace torchps
