#include "torchps/worker/model_use.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "torch/utils.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/storage/file_system.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/state_file.h"
#include "torchps/worker/torch_error.h"

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

namespace {

// Samples per batch. Without gradients, larger batches fit in memory than in training.
constexpr int64_t kBatch = 256;

// Calls `use` with a forward pass of each batch in the dataset.
absl::Status ForEachPass(const char* what, const Task& task, const Dataset& dataset,
                         torch::Device device, TrainingSpec::Precision precision,
                         const StopLatch* stop,
                         const std::function<absl::Status(const Pass& pass)>& use) {
  try {
    const EvaluationMode evaluation(task.module());
    const torch::NoGradGuard no_grad;
    std::vector<int64_t> all(dataset.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    const absl::Span<const int64_t> samples(all);
    for (size_t begin = 0; begin < samples.size(); begin += kBatch) {
      if (stop != nullptr && stop->stopped()) return absl::CancelledError(stop->reason());
      absl::StatusOr<Batch> batch = FetchBatch(dataset, samples.subspan(begin, kBatch));
      if (!batch.ok()) return batch.status();
      const Autocast autocast(precision, device.type());
      const Pass pass = task.Forward(ToDevice(*std::move(batch), device));
      if (absl::Status status = use(pass); !status.ok()) return status;
    }
    return absl::OkStatus();
  } catch (...) {
    return ThrownError(what);
  }
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const Task& task, const Dataset* dataset, torch::Device device,
                                    TrainingSpec::Precision precision, const StopLatch* stop) {
  if (dataset == nullptr || dataset->size() == 0) return Evaluation();
  MetricSums sums(&task.objective());
  const absl::Status status = ForEachPass("the evaluation", task, *dataset, device, precision, stop,
                                          [&sums](const Pass& pass) { return sums.Add(pass); });
  if (!status.ok()) return status;
  return sums.Result();
}

absl::Status Predict(
    const Task& task, const Dataset& dataset, torch::Device device,
    TrainingSpec::Precision precision,
    const std::function<absl::Status(const Batch& batch, const torch::Tensor& output)>& sink,
    const StopLatch* stop) {
  return ForEachPass("the prediction", task, dataset, device, precision, stop,
                     [&](const Pass& pass) {
                       return sink(ToDevice(pass.batch, torch::kCPU), pass.output().cpu());
                     });
}

Batch ToDevice(Batch batch, torch::Device device) {
  const auto move = [device](torch::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(device);
  };
  move(batch.input);
  move(batch.target);
  for (torch::Tensor& tensor : batch.more_inputs) move(tensor);
  for (torch::Tensor& tensor : batch.more_targets) move(tensor);
  return batch;
}

}  // namespace torchps
