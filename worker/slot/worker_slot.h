#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "client/coordinator_client.h"
#include "client/parameter_client.h"
#include "client/upkeep/heartbeat.h"
#include "common/block_map.h"
#include "common/data_fingerprint.h"
#include "common/element_runs.h"
#include "common/model_layout.h"
#include "proto/coordinator.pb.h"
#include "torch/nn/module.h"
#include "worker/evaluation.h"
#include "worker/flat_model.h"
#include "worker/gradient/gradient_watch.h"
#include "worker/loop/progress_timer.h"
#include "worker/loop/simulated_slowdown.h"
#include "worker/loop/step_loop.h"
#include "worker/module_tensors.h"
#include "worker/slot/device_work.h"
#include "worker/slot/model_handover.h"
#include "worker/slot/worker_options.h"

namespace torchps {

// Gives the module the values of model.init_from, where the job names a file. Errors of
// LoadState().
absl::Status LoadInitialState(torch::nn::Module& module, const WorkerOptions& options);

// A slot of a job, held by this process with a module: joined, the module laid out on the slot's
// device, its values and gradients connected to the servers, its lease renewed.
//
// Thread-compatible: all torch work is done by the calling thread; one more thread renews the
// leases. Borrows the module, whose tensors it takes over (worker/flat_model.h), and what
// WorkerOptions borrow.
class WorkerSlot {
 public:
  // Of a process that leads a replica: it holds the first stage of the slot's model, other
  // processes hold the others (worker/pipeline/run_member.h).
  struct Replica {
    // Of all stages, with the names of the whole model; the first one is the module's.
    std::vector<ModelLayout> layouts;
    // The name there of a tensor of the module.
    std::function<std::string(const std::string& name)> name_in_whole;
    std::vector<ReplicaMember> members;
  };

  // What a job is told of the data that this process trains on.
  struct Data {
    int64_t train_samples = 0;
    std::string description;
    std::map<std::string, std::string> metadata;  // DataSource::Metadata()
    DataFingerprint fingerprint = {};
    absl::optional<Replica> replica = absl::nullopt;
  };

  // What is done beside the steps; null ones are left out.
  struct Hooks {
    // Measures the module as it is, after this epoch.
    std::function<absl::StatusOr<Evaluation>(int epoch)> evaluate;
    // The module holds what was learnt.
    std::function<absl::Status()> on_end;
    // Of a replica's leader: the others are to push their initial values; they have to have pushed
    // their parts of a step (StepLoop::Options::finish_others).
    std::function<absl::Status()> initialize_others;
    std::function<absl::Status(PushResult* result)> finish_others;
  };

  // Fills the module from model.init_from, and joins with its layout, as a replica's leader with
  // that of all stages. INVALID_ARGUMENT: no server is given; as CheckPlacement(). Other errors as
  // in LoadState, CoordinatorClient, ParameterClient and FlatModel::Create, each one sentence.
  static absl::StatusOr<std::unique_ptr<WorkerSlot>> Join(torch::nn::Module& module, Data data,
                                                          WorkerOptions options);
  WorkerSlot(const WorkerSlot&) = delete;
  WorkerSlot& operator=(const WorkerSlot&) = delete;

  const JobSpec& job() const { return joined_.job(); }
  SlotId slot() const { return joined_.slot(); }
  // What the coordinator has answered.
  const JoinReply& joined() const { return joined_; }
  ParameterClient* parameters() { return parameters_.get(); }
  FlatModel* model() { return model_.get(); }
  // To be told when the trainer has ended a piece of its work, so that it is not taken for hung.
  ProgressTimer* pulse() { return &pulse_; }
  const BlockMap& block_map() const { return *block_map_; }

  // For who has a Learner compute the gradients, before that is made. Where the model lies on one
  // device apart from the host, that looks at each block from now on, before it is pushed, or where
  // the job has an encoding and nothing needs their floats here (docs/gpus.md), encodes it.
  // Otherwise all stays as it is, which is told where the device lacks something.
  void PreparePushesOnDevice();

  // For a loop that computes gradients by itself, before each one: sets them to zero.
  // FAILED_PRECONDITION as FlatModel::CheckModule().
  absl::Status BeginGradient();
  // Trained elements that nothing has given a gradient since BeginGradient().
  ElementRuns AbsentElements() const;

  // The slot's way through the job. To be made once.
  StepLoop* MakeLoop(Hooks hooks, bool may_prefetch);

  // What slows its steps down, as the options say.
  SimulatedSlowdown MakeHandicap() const;

  // Leaves the job; `trained` is what came of it. Returns the error to tell: that, or how the slot
  // was lost. REQUIRES: where `trained` is OK, that MakeLoop() was called.
  absl::Status Leave(const absl::Status& trained);

 private:
  WorkerSlot(torch::nn::Module& module, Data data, WorkerOptions options);

  absl::Status TakeSlot(const ModelLayout& layout);
  absl::Status LayOut(const ModuleTensors::GetGroup& group_of);
  // What servers on this machine are to see of the model. No buffers of an outbox where a gradient
  // is copied to the host as a whole.
  FlatModel::Shared SharedMemory() const;
  absl::Status Connect();

  torch::nn::Module& module_;
  const Data data_;
  const WorkerOptions options_;
  ProgressTimer pulse_;
  CoordinatorClient coordinator_;
  JoinReply joined_;
  std::unique_ptr<FlatModel> model_;
  std::unique_ptr<BlockMap> block_map_;
  std::unique_ptr<DeviceWork> device_work_;
  // Made by the first BeginGradient(): a Learner has its own.
  std::unique_ptr<GradientWatch> watch_;
  std::unique_ptr<ParameterClient> parameters_;
  std::unique_ptr<ModelHandover> handover_;
  // Uses the clients, so it ends before them.
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<StepLoop> loop_;
  // What servers know the model by.
  ModelLayout whole_layout_;
};

}  // namespace torchps
