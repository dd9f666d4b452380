#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torch/nn/module.h"
#include "torchps/client/coordinator_client.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/slot_leases.h"
#include "torchps/client/slot_upkeep.h"
#include "torchps/common/block_map.h"
#include "torchps/common/element_runs.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/types.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/gradient/gradient_watch.h"
#include "torchps/worker/loop/loop_hooks.h"
#include "torchps/worker/loop/simulated_slowdown.h"
#include "torchps/worker/loop/step_accounting.h"
#include "torchps/worker/loop/step_loop.h"
#include "torchps/worker/module_tensors.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/slot/device_work.h"
#include "torchps/worker/slot/model_handover.h"
#include "torchps/worker/slot/worker_options.h"
#include "torchps/worker/training_observer.h"

namespace torchps {

// Loads model.init_from into the module if the job names a file. Returns errors of LoadState().
absl::Status LoadInitialState(torch::nn::Module& module, const WorkerOptions& options);

// Holds a slot of a job for this process: joins with a module, lays the module out on the slot's
// device, connects it to the servers and renews the slot's leases.
//
// Thread-compatible: the calling thread does all torch work; another thread renews the leases.
// Borrows everything that WorkerOptions borrow, and the module. The module's tensors become views
// of flat vectors (torchps/worker/flat_model.h).
class WorkerSlot final : public TrainingObserver, private UpkeepCalls {
 public:
  // Set if this process leads a replica: it holds the first stage of the slot's model, and other
  // processes hold the later stages (torchps/worker/pipeline/run_member.h).
  struct Replica {
    // Layouts of all stages, with the tensor names of the whole model. The first is the module's.
    std::vector<ModelLayout> layouts;
    // Maps a tensor name of the module to the name in the whole model.
    std::function<std::string(const std::string& name)> full_name;
    std::vector<ReplicaMember> members;
  };

  // Describes this process's training data to the coordinator.
  struct Data {
    int64_t train_samples = 0;
    std::string description;
    std::map<std::string, std::string> metadata;  // DataSource::Metadata()
    DataFingerprint fingerprint = {};
    std::optional<Replica> replica = std::nullopt;
  };

  // Loads model.init_from into the module and joins with the module's layout. If this process leads
  // a replica, joins with the layout of all stages. INVALID_ARGUMENT if `servers` is empty, or as
  // for CheckPlacement(). Other errors are those of LoadState, CoordinatorClient, ParameterClient
  // and FlatModel::Create, each one sentence.
  static absl::StatusOr<std::unique_ptr<WorkerSlot>> Join(torch::nn::Module& module, Data data,
                                                          WorkerOptions options);
  WorkerSlot(const WorkerSlot&) = delete;
  WorkerSlot& operator=(const WorkerSlot&) = delete;

  const JobSpec& job() const { return joined_.job(); }
  SlotId slot() const { return joined_.slot(); }
  // Returns the coordinator's reply.
  const JoinReply& joined() const { return joined_; }
  ParameterClient* parameters() { return parameters_.get(); }
  FlatModel* model() { return model_.get(); }
  // Returns the timer to restart (Beat()) after each unit of the trainer's work, so that the worker
  // does not seem hung. OnProgress() restarts it for a Learner.
  ProgressTimer* pulse() { return &pulse_; }
  const BlockMap& block_map() const { return *block_map_; }

  // Makes the device process gradients before they are pushed. Applies if one device with separate
  // memory, such as a GPU, holds the whole model. The device encodes gradients if the job
  // configures an encoding and the host does not need the floats (docs/gpus.md). Otherwise the
  // device checks each block. If the device lacks a capability, logs that, and the host does the
  // work. Call it before creating a Learner.
  void PreparePushesOnDevice();

  // For a loop without a Learner: sets the gradients to zero. Call it before each gradient.
  // FAILED_PRECONDITION as for FlatModel::CheckModule().
  absl::Status BeginGradient();
  // Returns the trained elements without a gradient since BeginGradient().
  ElementRuns AbsentElements() const;

  // Returns options for the hooks of a process that holds the whole model. They borrow from the
  // slot.
  ModelHandover::Options HandoverOptions();
  // Makes the slot's step loop. Call it once. Borrows the hooks until Leave() returns, or until the
  // loop is closed.
  StepLoop* MakeLoop(LoopHooks* hooks, bool may_prefetch);

  void OnProgress() override { pulse_.Beat(); }
  void OnScale(const LossScaler& scaler) override { options_.print(ScaleLine(slot(), scaler)); }
  void Log(const std::string& line) override { options_.log(line); }

  // Makes the configured slowdown.
  SimulatedSlowdown MakeHandicap() const;

  // Leaves the job. `trained` is the result of training. Returns the error to report: `trained`, or
  // the reason for losing the slot. REQUIRES: if `trained` is OK, MakeLoop() was called.
  absl::Status Leave(const absl::Status& trained);

 private:
  WorkerSlot(torch::nn::Module& module, Data data, WorkerOptions options);

  absl::Status TakeSlot(const ModelLayout& layout);
  absl::Status LayOut(const ModuleTensors::GetGroup& group_of);
  // Returns the memory to share with servers on this machine. Outbox buffers are not shared if
  // gradients are copied to the host as a whole.
  FlatModel::Shared SharedMemory() const;
  absl::Status Connect();

  // UpkeepCalls, for the heartbeat's thread.
  absl::Duration stalled_for() const override { return pulse_.stalled_for(); }
  absl::StatusOr<RenewSlotReply> RenewSlot(absl::Duration timeout,
                                           RenewSlotRequest request) override;
  Renewals RenewLeases(absl::Duration timeout, absl::Duration stalled_for,
                       absl::Duration longest_pause) override;
  void StepAside(absl::Duration timeout, const std::vector<int>& silent) override;

  torch::nn::Module& module_;
  const Data data_;
  const WorkerOptions options_;
  ProgressTimer pulse_;
  CoordinatorClient coordinator_;
  JoinReply joined_;
  std::unique_ptr<FlatModel> model_;
  std::unique_ptr<BlockMap> block_map_;
  std::unique_ptr<DeviceWork> device_work_;
  // Made by the first BeginGradient(). Learner does not use it.
  std::unique_ptr<GradientWatch> watch_;
  std::unique_ptr<ParameterClient> parameters_;
  // `upkeep_` and `heartbeat_` use the clients above, so they must be destroyed before them.
  std::unique_ptr<SlotUpkeep> upkeep_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<StepLoop> loop_;
  // The layout of the model on the servers.
  ModelLayout whole_layout_;
};

}  // namespace torchps
