#include "torchps/worker/replicas/replica_group.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "ATen/Context.h"
#include "ATen/Parallel.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/replicas/replica_tasks.h"
#include "torchps/worker/replicas/sync_batch_norm.h"
#include "torchps/worker/torch_error.h"
#include "torchps/worker/training_observer.h"

namespace torchps {
namespace {

// Ignores all calls: the gradients of further replicas can always be overwritten.
class NoObserver final : public Learner::Observer {
 public:
  absl::Status BeforeGradient(absl::Duration) override { return absl::OkStatus(); }
  void OnBlock(BlockId) override {}
};

// Measures how long another observer delays the step.
class TimedObserver final : public Learner::Observer {
 public:
  TimedObserver(Learner::Observer* observer, const Clock* clock)
      : observer_(observer), clock_(clock) {}
  absl::Status BeforeGradient(absl::Duration compute_time) override {
    const absl::Duration began = clock_->Now();
    const absl::Status status = observer_->BeforeGradient(compute_time);
    held_ += clock_->Now() - began;
    return status;
  }
  absl::Status BeforeBlocks() override {
    const absl::Duration began = clock_->Now();
    const absl::Status status = observer_->BeforeBlocks();
    held_ += clock_->Now() - began;
    return status;
  }
  void OnBlock(BlockId) override {}
  absl::Duration held() const { return held_; }

 private:
  Learner::Observer* const observer_;
  const Clock* const clock_;
  absl::Duration held_;
};

// Seeds the generator of one GPU. torch::manual_seed would use the same seed for each GPU.
void SeedDevice(torch::Device device, uint64_t seed) {
  if (!device.is_cuda()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

absl::Status CheckSyncDevices(torch::Device lead, const DeviceList& further) {
  DeviceList gpus;
  if (lead.is_cuda()) gpus.push_back(lead);
  for (const torch::Device& device : further) {
    if (!device.is_cuda()) continue;
    // Two replicas on one GPU share autograd's thread for this GPU, which would wait for itself.
    if (std::find(gpus.begin(), gpus.end(), device) != gpus.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("training.sync_batchnorm needs a GPU for each replica; expected '",
                       device.str(), "' once"));
    }
    gpus.push_back(device);
  }
  return absl::OkStatus();
}

}  // namespace

// Connects one replica's batch norms to the other replicas.
class ReplicaGroup::Sums final : public BatchSums {
 public:
  Sums(ThreadAllReduce* meeting, size_t replica, size_t replicas)
      : meeting_(meeting), replica_(replica), replicas_(replicas) {}

  // Sets the number of samples in the pass, summed over the replicas. Runs on this replica's thread
  // before torch's backward threads start.
  void BeginPass(size_t samples) { participants_ = PartsOfPass(samples, replicas_); }

  absl::Status Add(const torch::Tensor& tensor) override {
    return meeting_->SumToAll(replica_, participants_, tensor);
  }

 private:
  ThreadAllReduce* const meeting_;
  const size_t replica_;
  const size_t replicas_;
  size_t participants_ = 0;
};

// Reports a replica's passes to its Sums, and all other events to the group's observer.
class ReplicaGroup::Passes final : public TrainingObserver {
 public:
  Passes(TrainingObserver* observer, Sums* sums) : observer_(observer), sums_(sums) {}
  void OnProgress() override { observer_->OnProgress(); }
  void OnPass(size_t samples) override { sums_->BeginPass(samples); }
  void OnScale(const LossScaler& scaler) override { observer_->OnScale(scaler); }
  void Log(const std::string& line) override { observer_->Log(line); }

 private:
  TrainingObserver* const observer_;
  Sums* const sums_;
};

struct ReplicaGroup::Replica {
  explicit Replica(Task trained) : task(std::move(trained)) {}

  const Task task;
  FlatModel* model = nullptr;
  // Owns `model` in further replicas. Null in the lead.
  std::unique_ptr<FlatModel> own_model;
  std::unique_ptr<Sums> sums;
  std::unique_ptr<Passes> passes;
  std::unique_ptr<Learner> learner;
  // Result of the current step.
  absl::StatusOr<Learner::Gradient> gradient = Learner::Gradient();
};

ReplicaGroup::ReplicaGroup(Options options, std::unique_ptr<LocalGroup> group, size_t replicas)
    : options_(std::move(options)),
      group_(std::move(group)),
      meeting_(group_.get(), replicas),
      crew_(replicas) {}

ReplicaGroup::~ReplicaGroup() {
  // The user's modules outlive the group, so their batch norms must not keep pointers to its Sums.
  for (const auto& replica : replicas_) {
    SynchronizeBatchNorms(replica->task.module(), nullptr).IgnoreError();
  }
}

absl::StatusOr<std::unique_ptr<ReplicaGroup>> ReplicaGroup::Create(const Task& lead,
                                                                   FlatModel* model,
                                                                   const std::vector<Task>& further,
                                                                   const DeviceList& devices,
                                                                   Options options) {
  if (options.learning.training.sync_batchnorm()) {
    const absl::Status status = CheckSyncDevices(model->device(), devices);
    if (!status.ok()) return status;
  }
  DeviceList all = {model->device()};
  all.insert(all.end(), devices.begin(), devices.end());
  absl::StatusOr<std::unique_ptr<LocalGroup>> group = MakeLocalGroup(all);
  if (!group.ok()) return group.status();
  options.learning.replicas = all.size();
  // The replicas' gradients are summed, so the replicas must use the same loss scale.
  options.learning.scaler = std::make_shared<LossScaler>();
  auto replicas =
      absl::WrapUnique(new ReplicaGroup(std::move(options), *std::move(group), all.size()));

  if (absl::Status status = replicas->AddReplica(lead, model); !status.ok()) return status;
  for (size_t i = 0; i < further.size(); ++i) {
    // Copies state that a pull does not include: init_from values, frozen parameters, counters.
    if (absl::Status status = CopyState(lead.module(), further[i].module()); !status.ok()) {
      return status;
    }
    absl::StatusOr<std::unique_ptr<FlatModel>> made = FlatModel::Create(
        further[i].module(), devices[i], [](const std::string&) { return -1; },
        FlatModel::Shared::kNothing, /*mirrored=*/false);
    if (!made.ok()) return made.status();
    if (absl::Status status = replicas->AddReplica(further[i], made->get()); !status.ok()) {
      return status;
    }
    replicas->replicas_.back()->own_model = *std::move(made);
    if (devices[i] != model->device()) {
      SeedDevice(devices[i], replicas->options_.seed ^ (uint64_t{i + 1} << 40));
    }
  }

  // Each replica thread uses as many torch threads as the caller, on the replica's device.
  const int threads = at::get_num_threads();
  std::vector<absl::Status> ready(all.size());
  replicas->crew_.Run([&](size_t i) {
    ready[i] = UseDevice(all[i]);
    at::set_num_threads(threads);
  });
  for (const absl::Status& status : ready) {
    if (!status.ok()) return status;
  }
  return replicas;
}

absl::Status ReplicaGroup::AddReplica(const Task& task, FlatModel* model) {
  auto replica = std::make_unique<Replica>(task);
  replica->model = model;
  replica->sums = std::make_unique<Sums>(&meeting_, replicas_.size(), options_.learning.replicas);
  if (options_.learning.training.sync_batchnorm()) {
    const absl::Status status = SynchronizeBatchNorms(task.module(), replica->sums.get());
    if (!status.ok()) return status;
  }
  Learner::Options learning = options_.learning;
  learning.replica = replicas_.size();
  replica->passes = std::make_unique<Passes>(options_.learning.observer, replica->sums.get());
  learning.observer = replica->passes.get();
  replica->learner = std::make_unique<Learner>(task, model, std::move(learning));
  replicas_.push_back(std::move(replica));
  return absl::OkStatus();
}

absl::Status ReplicaGroup::CopyValues() {
  std::vector<torch::Tensor> values, averaged;
  for (const auto& replica : replicas_) {
    values.push_back(replica->model->device_values());
    averaged.push_back(replica->model->device_averaged());
  }
  if (absl::Status status = group_->Copy(values); !status.ok()) return status;
  return averaged.front().numel() > 0 ? group_->Copy(averaged) : absl::OkStatus();
}

absl::Status ReplicaGroup::AddUp(const std::vector<Learner::Gradient>& parts, int64_t samples) {
  std::vector<torch::Tensor> gradients, averaged;
  for (size_t i = 0; i < parts.size() && parts[i].samples > 0; ++i) {
    gradients.push_back(replicas_[i]->model->device_gradients());
    averaged.push_back(replicas_[i]->model->device_averaged());
  }
  if (gradients.size() == 1) return absl::OkStatus();
  if (absl::Status status = group_->Sum(gradients); !status.ok()) return status;
  if (averaged.front().numel() == 0 || options_.learning.training.sync_batchnorm()) {
    return absl::OkStatus();
  }
  try {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < averaged.size(); ++i) {
      averaged[i].mul_(static_cast<double>(parts[i].samples) / static_cast<double>(samples));
    }
  } catch (const std::exception& error) {
    return TorchError("weighing averaged buffers", error);
  }
  return group_->Sum(averaged);
}

absl::StatusOr<Learner::Gradient> ReplicaGroup::Compute(const StepWork& step,
                                                        Learner::Observer* observer) {
  const Clock& clock = *options_.learning.clock;
  const absl::Duration began = clock.Now();
  if (absl::Status status = CopyValues(); !status.ok()) return status;
  meeting_.Begin();
  TimedObserver timed(observer, &clock);
  // The time that the observer delayed the lead while the lead's device computed nothing.
  absl::Duration held;
  crew_.Run([&](size_t i) {
    Replica& replica = *replicas_[i];
    NoObserver nobody;
    const absl::Duration part_began = clock.Now();
    replica.gradient = replica.learner->ComputePart(
        step, i == 0 ? static_cast<Learner::Observer*>(&timed) : &nobody);
    absl::Status status = replica.gradient.status();
    if (status.ok() && i == 0) {
      const absl::Duration busy = replica.gradient->data_time + replica.gradient->compute_time;
      held = std::min(timed.held(), clock.Now() - part_began - busy);
    }
    if (!status.ok() && i > 0) {
      status = absl::Status(status.code(),
                            absl::StrCat("replica ", i, " on ", replica.model->device().str(), ": ",
                                         status.message()));
    }
    meeting_.Leave(status);
  });
  if (absl::Status status = meeting_.status(); !status.ok()) return status;

  std::vector<Learner::Gradient> parts;
  for (const auto& replica : replicas_) parts.push_back(*std::move(replica->gradient));
  Learner::Gradient whole;
  absl::Duration slowest;
  for (const Learner::Gradient& part : parts) {
    whole.samples += part.samples;
    whole.loss_sum += part.loss_sum;
    if (part.weight.has_value()) whole.weight = whole.weight.value_or(0) + *part.weight;
    if (part.data_time + part.compute_time < slowest) continue;
    slowest = part.data_time + part.compute_time;
    whole.data_time = part.data_time;
  }
  if (absl::Status status = AddUp(parts, whole.samples); !status.ok()) return status;
  if (absl::Status status = replicas_[0]->learner->Finish(&whole); !status.ok()) return status;
  for (size_t i = 1; i < parts.size() && parts[i].samples > 0; ++i) {
    whole.absent = RunsInBoth(whole.absent, parts[i].absent);
  }
  // Excludes the lead's delay, even if other replicas computed in the meantime.
  const absl::Duration all = clock.Now() - began - held;
  whole.data_time = std::min(whole.data_time, all);
  whole.compute_time = all - whole.data_time;
  return whole;
}

}  // namespace torchps
