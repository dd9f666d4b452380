#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/coordinator_client.h"
#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "torch/nn/module.h"
#include "worker/state_file.h"

namespace torchps {

// Hands the module's state to the coordinator, which keeps it as files (ModelFile in
// proto/coordinator.proto). docs/storage.md, "Model files", lists their metadata.
//
// A file that cannot be kept does not end training: the worker logs it.
//
// Thread-compatible: used by the thread that trains. Borrows module, layout and coordinator.
class ModelHandover {
 public:
  struct Options {
    JobSpec job;  // as the coordinator has completed it, with data.preprocessing
    const torch::nn::Module* module = nullptr;
    const ModelLayout* layout = nullptr;
    CoordinatorClient* coordinator = nullptr;
    std::function<void(const std::string& line)> log;
  };

  explicit ModelHandover(Options options) : options_(std::move(options)) {}

  // Hands over what the module has and the servers have not; nothing where there is nothing.
  // Errors are those that end a worker: CANCELLED, ABORTED, UNAVAILABLE.
  absl::Status HandOverConstants();

  // The module with the values that `result` is about, as the files that `keep` asks for. Sets
  // `model_not_kept` of `result` where the final model cannot be kept.
  absl::Status HandOver(const KeepModel& keep, EvaluationResult* result);

 private:
  // `not_kept` gets the reason where the file cannot be kept.
  absl::Status Send(ModelFile file, const absl::StatusOr<StateFile>& state, std::string* not_kept);

  const Options options_;
};

}  // namespace torchps
