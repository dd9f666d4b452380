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

// The tensors of a module's state_dict, to be written to a file of another form: those of a
// checkpoint, with what the servers do not hold (constants.safetensors), or those of a model file.
// Tensors of any size pass through a block of memory. Not thread-safe.
class ExportedModel {
 public:
  struct Tensor {
    std::string name;
    Dtype dtype = Dtype::kF32;
    std::vector<int64_t> shape;
    int64_t bytes = 0;
  };

  // The parameters and averaged buffers of the checkpoint that `reader` has all blocks of, and what
  // `constants` has beside them, where there is such a file. Borrows `files` and `reader`.
  // DATA_LOSS: the file is damaged, or of another model.
  static absl::StatusOr<ExportedModel> OfCheckpoint(FileSystem* files,
                                                    const CheckpointReader* reader,
                                                    const std::string& constants);

  // The tensors of a safetensors file. Borrows `files`.
  static absl::StatusOr<ExportedModel> OfFile(FileSystem* files, const std::string& path);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // All bytes of tensor i in their order, in as many pieces as it takes. The first error, the
  // sink's included.
  using Sink = std::function<absl::Status(absl::string_view bytes)>;
  absl::Status Read(size_t i, const Sink& sink) const;

 private:
  using Source = std::function<absl::Status(const Sink& sink)>;

  ExportedModel() = default;
  void Add(Tensor tensor, Source source);
  void AddFile(const std::shared_ptr<SafetensorsReader>& file);
  // Tensors that the module has under further names, as the metadata of `constants` tell. DATA_LOSS
  // if a name would be there twice.
  absl::Status AddTied(const SafetensorsReader& constants);
  // Large elements first, so that each tensor lies at a multiple of its element's size.
  void SortBySize();

  std::vector<Tensor> tensors_;
  std::vector<Source> sources_;  // of each
  std::map<std::string, std::string> metadata_;
};

}  // namespace torchps
