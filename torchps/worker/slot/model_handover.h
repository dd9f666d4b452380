#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/nn/module.h"
#include "torchps/client/coordinator_client.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/loop/loop_hooks.h"
#include "torchps/worker/state_file.h"

namespace torchps {

// The hooks of a process that holds the whole model. Sends the module's state to the coordinator,
// which stores it as model files (ModelFile in torchps/proto/coordinator.proto). docs/storage.md,
// "Model files", lists the metadata. Subclasses evaluate the module.
//
// If a file cannot be stored, the worker logs it and continues training.
//
// Thread-compatible: used by the training thread. Borrows the module, the layout and the
// coordinator.
class ModelHandover : public LoopHooks {
 public:
  struct Options {
    JobSpec job;  // completed by the coordinator, with data.preprocessing
    const torch::nn::Module* module = nullptr;
    const ModelLayout* layout = nullptr;
    CoordinatorClient* coordinator = nullptr;
    std::function<void(const std::string& line)> log;
  };

  explicit ModelHandover(Options options) : options_(std::move(options)) {}

  // Sends the constants: the module's state that the servers do not hold. Does nothing if there are
  // none. Returns only errors that end a worker: CANCELLED, ABORTED, UNAVAILABLE.
  absl::Status OnInitialized() override;

  // Sends the module as the files that `keep` asks for. `result` is the evaluation of the module's
  // current values. Sets `model_not_kept` of `result` if the final model cannot be stored.
  absl::Status HandOver(const KeepModel& keep, EvaluationResult* result) override;

 private:
  // Sets `not_kept` to the reason if the file cannot be stored.
  absl::Status Send(ModelFile file, const absl::StatusOr<StateFile>& state, std::string* not_kept);

  const Options options_;
};

}  // namespace torchps
