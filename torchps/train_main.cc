#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/common/hash.h"
#include "torchps/program/pipeline/run_stage.h"
#include "torchps/program/task_setup.h"
#include "torchps/program/worker_program.h"
#include "torchps/train.h"
#include "torchps/worker/replicas/replica_tasks.h"
#include "torchps/worker/slot/run_worker.h"
#include "torchps/worker/torch_error.h"

namespace torchps {
namespace {

absl::StatusOr<Task> MakeTask(const TaskFactory& factory, const JobSpec& job) {
  try {
    absl::StatusOr<Task> task = factory(job);
    if (task.ok() && !task->status().ok()) return task->status();
    return task;
  } catch (...) {
    // INVALID_ARGUMENT, because the job or the data cause the failure, so a restart would fail
    // again.
    return absl::InvalidArgumentError(ThrownError("making the task").message());
  }
}

// Assigns several devices to the module's stages; if there are no stages, to replicas of the
// module.
absl::Status PlaceStages(const torch::nn::Module& module, WorkerOptions* options) {
  const bool has_stages = dynamic_cast<const StagesImpl*>(&module) != nullptr;
  if (has_stages && !options->further_devices.empty()) {
    options->stage_devices = std::exchange(options->further_devices, {});
    options->stage_devices.insert(options->stage_devices.begin(), options->device);
  }
  if (options->micro_batches == 0 || !options->stage_devices.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--micro_batches needs a module in stages; set a --device for each stage, for example "
      "--device=cuda:0,cuda:1, or run several processes with --stage");
}

// Calls the user's `cut`, which may throw.
absl::StatusOr<Stages> Cut(const ModuleCutter& cut, const JobSpec& job,
                           const torch::nn::Module& module, int stages) {
  try {
    return cut(job, module, stages);
  } catch (...) {
    return absl::InvalidArgumentError(ThrownError("cutting the module into stages").message());
  }
}

// Returns the stage for this process.
absl::StatusOr<MemberTask> CutTask(const Task& task, const WorkerOptions& options,
                                   const ModuleCutter& cut) {
  const bool has_stages = dynamic_cast<const StagesImpl*>(&task.module()) != nullptr;
  if (cut == nullptr || has_stages) return GetStage(task, options);
  const absl::StatusOr<Stages> stages =
      Cut(cut, options.job, task.module(), static_cast<int>(options.replica.size()));
  if (!stages.ok()) return stages.status();
  absl::StatusOr<MemberTask> stage =
      GetStage(Task(*stages, task.objective(), task.data(), task.callbacks()), options);
  if (stage.ok()) stage->has_whole_names = true;
  return stage;
}

WorkerProgram GetProgram(const TaskFactory& factory, const ModuleCutter& cut = nullptr) {
  WorkerProgram program;
  program.train = [factory, cut](const JobSpec& job, const Connect& connect) -> absl::Status {
    absl::StatusOr<Task> task = MakeTask(factory, job);
    if (!task.ok()) return task.status();
    absl::StatusOr<WorkerOptions> options = connect();
    if (!options.ok()) return options.status();
    if (options->stage >= 0) {
      const absl::StatusOr<MemberTask> stage = CutTask(*task, *options, cut);
      if (!stage.ok()) return stage.status();
      // Free the other stages; this process does not need them.
      task = absl::UnavailableError("the task is in stages");
      return RunStage(*stage, *std::move(options));
    }
    if (absl::Status status = PlaceStages(task->module(), &*options); !status.ok()) return status;
    const DeviceList further = options->further_devices;
    if (further.empty()) return RunWorker(*task, *std::move(options));
    absl::StatusOr<std::vector<Task>> replicas = MakeReplicaTasks(
        *task, [&] { return MakeTask(factory, job); }, job.seed(), options->device, further);
    if (!replicas.ok()) return replicas.status();
    return RunWorker(*task, *std::move(options), ComputeOnDevices(*std::move(replicas), further));
  };
  program.look = [factory](const JobSpec& job, const InferenceRequest& look,
                           const TaskIsMade& made) -> absl::Status {
    const absl::StatusOr<Task> task = MakeTask(factory, job);
    if (!task.ok()) return task.status();
    if (absl::Status status = made(); !status.ok()) return status;
    return RunInference(*task, look);
  };
  program.watch = [factory](const JobSpec& job, const LiveEvaluatorOptions& options,
                            const TaskIsMade& made) -> absl::Status {
    const absl::StatusOr<Task> task = MakeTask(factory, job);
    if (!task.ok()) return task.status();
    if (absl::Status status = made(); !status.ok()) return status;
    return WatchJob(*task, job, options);
  };
  return program;
}

// Creates the stage. The seed depends only on the job and the stage, so that every process creates
// the same parameters.
ModelStage MakeStage(const StagedTask& task, const JobSpec& job, size_t stage) {
  uint64_t seed = job.seed() + stage;
  torch::manual_seed(SplitMix64(seed));
  return task.stages[stage]();
}

absl::StatusOr<StagedTask> MakeStagedTask(const StagedTaskFactory& factory, const JobSpec& job) {
  absl::StatusOr<StagedTask> task = factory(job);
  if (!task.ok()) return task;
  if (!task->data.ok()) return task->data.status();
  if (task->stages.empty()) return absl::InvalidArgumentError("the task has no stage");
  return task;
}

// A task's stage, and the number of stages.
struct OwnStage {
  MemberTask member;
  size_t stages = 0;
};

absl::StatusOr<OwnStage> MakeOwnStage(const StagedTaskFactory& factory, const JobSpec& job,
                                      int stage) {
  try {
    const absl::StatusOr<StagedTask> task = MakeStagedTask(factory, job);
    if (!task.ok()) return task.status();
    if (stage >= static_cast<int>(task->stages.size())) {
      return absl::InvalidArgumentError(absl::StrCat("--stage is ", stage, ", but the model has ",
                                                     task->stages.size(), " stages"));
    }
    return OwnStage{{MakeStage(*task, job, static_cast<size_t>(stage)), task->objective,
                     *task->data, task->callbacks.augment},
                    task->stages.size()};
  } catch (...) {
    return absl::InvalidArgumentError(ThrownError("making the task").message());
  }
}

absl::Status TrainStage(const StagedTaskFactory& factory, const JobSpec& job, int stage,
                        const Connect& connect) {
  const absl::StatusOr<OwnStage> own = MakeOwnStage(factory, job, stage);
  if (!own.ok()) return own.status();
  absl::StatusOr<WorkerOptions> options = connect();
  if (!options.ok()) return options.status();
  if (options->replica.size() != own->stages) {
    return absl::InvalidArgumentError(absl::StrCat("--replica lists ", options->replica.size(),
                                                   " processes, but the model has ", own->stages,
                                                   " stages"));
  }
  return RunStage(own->member, *std::move(options));
}

}  // namespace

int TrainStagesMain(int argc, char** argv, const StagedTaskFactory& factory) {
  const TaskFactory whole = [&factory](const JobSpec& job) -> absl::StatusOr<Task> {
    const absl::StatusOr<StagedTask> task = MakeStagedTask(factory, job);
    if (!task.ok()) return task.status();
    std::vector<ModelStage> stages;
    for (size_t stage = 0; stage < task->stages.size(); ++stage) {
      stages.push_back(MakeStage(*task, job, stage));
    }
    return Task(Stages(std::move(stages)), task->objective, task->data, task->callbacks);
  };
  WorkerProgram program = GetProgram(whole);
  program.train = [&factory, train = program.train](const JobSpec& job,
                                                    const Connect& connect) -> absl::Status {
    const int stage = FlaggedStage();
    return stage < 0 ? train(job, connect) : TrainStage(factory, job, stage, connect);
  };
  return RunWorkerProgram(argc, argv, program);
}

int TrainMain(int argc, char** argv, const TaskFactory& factory) {
  return RunWorkerProgram(argc, argv, GetProgram(factory));
}

int TrainMain(int argc, char** argv, const TaskFactory& factory, const ModuleCutter& cut) {
  return RunWorkerProgram(argc, argv, GetProgram(factory, cut));
}

}  // namespace torchps
