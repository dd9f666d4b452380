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
#include "torchps/checkpoint/checkpoint_reader.h"
#include "torchps/checkpoint/safetensors.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Provides the tensors of a module's state_dict for export to a model file. Reads them from a
// checkpoint and constants.safetensors (tensors that the servers do not hold). Reads large tensors
// one block at a time. Not thread-safe.
class ExportedModel {
 public:
  struct Tensor {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    int64_t bytes = 0;
  };

  // Opens the checkpoint's parameters and averaged buffers, and the tensors in `constants` if that
  // file exists. Borrows `files` and `reader`. REQUIRES: `reader` contains all blocks. DATA_LOSS:
  // `constants` is damaged or belongs to another model.
  static absl::StatusOr<ExportedModel> OfCheckpoint(FileSystem* files,
                                                    const CheckpointReader* reader,
                                                    const std::string& constants);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // Passes the bytes of tensor i to the sink in order, in several calls. Returns the first error,
  // including the sink's.
  using Sink = std::function<absl::Status(absl::string_view bytes)>;
  absl::Status Read(size_t i, const Sink& sink) const;

 private:
  using Source = std::function<absl::Status(const Sink& sink)>;

  ExportedModel() = default;
  void Add(Tensor tensor, Source source);
  // DATA_LOSS: torchps does not support the dtype of a tensor.
  absl::Status AddFile(const std::shared_ptr<SafetensorsReader>& file);
  // Adds each tied tensor under the other names that the metadata of `constants` list. DATA_LOSS: a
  // name would be a duplicate.
  absl::Status AddTied(const SafetensorsReader& constants);
  // Sorts tensors with large elements first, so that each tensor is aligned to the element size.
  void SortBySize();

  std::vector<Tensor> tensors_;
  std::vector<Source> sources_;  // parallel to tensors_
  std::map<std::string, std::string> metadata_;
};

// Writes the model as a safetensors file with the module's tensor names. Replaces a file at `path`
// only when the new file is complete. Returns the errors of FileSystem and `model`.
absl::Status ExportSafetensors(FileSystem* files, const std::string& path,
                               const ExportedModel& model);

}  // namespace torchps
