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

// Hands the module's state over to the coordinator, which keeps it as files (ModelFile in
// proto/coordinator.proto). What the files' metadata say: docs/checkpoint.md, "Model files".
//
// A file that cannot be kept ends no training: it is logged, and the result is OK.
//
// Thread-compatible: used by the thread that trains. Borrows module, layout and coordinator.
class ModelHandover {
 public:
  struct Options {
    JobSpec job;
    // What the data source did to the input (DataSource::transform).
    std::map<std::string, std::string> transform;
    const torch::nn::Module* module = nullptr;
    const ModelLayout* layout = nullptr;
    CoordinatorClient* coordinator = nullptr;
    std::function<void(const std::string& line)> log;
  };

  explicit ModelHandover(Options options) : options_(std::move(options)) {}

  // What the module has and the servers have not. Nothing is handed over where that is nothing.
  // Errors are those that end a worker: CANCELLED, ABORTED, UNAVAILABLE.
  absl::Status HandOverConstants();

  // The module with the values that `result` is about, as the files that `keep` asks for.
  absl::Status HandOver(const EvaluationResult& result, const KeepModel& keep);

 private:
  absl::Status Send(ModelFile file, const absl::StatusOr<StateFile>& state);

  const Options options_;
};

}  // namespace torchps
