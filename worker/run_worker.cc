#include "worker/run_worker.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/calls/this_host.h"
#include "client/coordinator_client.h"
#include "client/heartbeat.h"
#include "client/parameter_client.h"
#include "common/block_map.h"
#include "job/parameter_groups.h"
#include "torch/utils.h"
#include "wire/layout_codec.h"
#include "worker/device.h"
#include "worker/flat_model.h"
#include "worker/learner.h"
#include "worker/model_handover.h"
#include "worker/state_file.h"
#include "worker/torch_error.h"
#include "worker/trainer.h"

namespace torchps {
namespace {

// Renewals per lease: two may be lost before the slot is.
constexpr double kRenewalsPerLease = 3;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

uint64_t DrawNonce() {
  std::random_device random;
  uint64_t nonce = 0;
  while (nonce == 0) nonce = (uint64_t{random()} << 32) | random();
  return nonce;
}

JoinRequest MakeJoinRequest(const WorkerOptions& options, const ModelLayout& layout,
                            const Task& task) {
  JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_job() = options.job;
  *request.mutable_layout() = EncodeLayout(layout);
  request.set_wanted_slot(options.slot);
  request.set_nonce(DrawNonce());
  request.set_host(HostName());
  request.set_device(options.device.str());
  request.set_train_samples(task.data().train->size());
  request.set_model(options.job.model().name().empty() ? task.module().name()
                                                       : options.job.model().name());
  request.set_data(task.data().description);
  request.set_server_count(static_cast<int>(options.servers.size()));
  for (const ServerEndpoint& server : options.servers) request.add_server_address(server.address);
  return request;
}

absl::Duration RenewalInterval(const JobSpec& job) {
  return absl::Seconds(job.membership().lease_seconds() / kRenewalsPerLease);
}

// Whether there is a server that could read this worker's memory.
bool MayShare(const WorkerOptions& options) {
  return options.job.wire().shared_memory() &&
         std::any_of(options.servers.begin(), options.servers.end(),
                     [](const ServerEndpoint& server) { return IsThisHost(server.address); });
}

absl::Status LostSlot(SlotId slot, const absl::Status& why) {
  return absl::AbortedError(
      absl::StrCat("slot ", slot, " no longer belongs to this process: ", why.message()));
}

// The module's values from model.init_from, where the job names a file.
absl::Status Initialize(const Task& task, const WorkerOptions& options) {
  const ModelSpec& model = options.job.model();
  if (model.init_from().empty()) return absl::OkStatus();
  std::vector<std::string> unmatched;
  const absl::Status loaded =
      LoadState(task.module(), model.init_from(),
                model.init_partial() ? Match::kCommon : Match::kAll, &unmatched);
  if (!loaded.ok()) {
    return absl::Status(loaded.code(), absl::StrCat("model.init_from: ", loaded.message()));
  }
  if (!unmatched.empty()) {
    options.log(absl::StrCat("model.init_from: only the file or only the module has ",
                             absl::StrJoin(unmatched, ", "), "; those are left as they are"));
  }
  return absl::OkStatus();
}

// The module on the device of its slot.
absl::StatusOr<std::unique_ptr<FlatModel>> LayOut(const Task& task, const WorkerOptions& options,
                                                  const JoinReply& joined,
                                                  const FlatModel::GroupOf& group_of,
                                                  CoordinatorClient* coordinator) {
  // A GPU that no process has used yet may take longer than a lease.
  const Heartbeat heartbeat(
      RenewalInterval(joined.job()),
      [&](absl::Duration timeout) { return coordinator->RenewSlot(timeout); },
      [&](const absl::Status& lost) { options.stop->Stop(std::string(lost.message())); });
  const torch::Device device = DeviceOfSlot(options.device, joined.slot());
  if (absl::Status status = UseDevice(device); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<FlatModel>> model =
      FlatModel::Create(task.module(), device, group_of, MayShare(options));
  if (absl::Status lost = heartbeat.status(); !lost.ok()) return LostSlot(joined.slot(), lost);
  return model;
}

// Runs the user's code, which may throw.
absl::Status Guarded(const char* what, const std::function<void()>& run) {
  try {
    run();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return TorchError(what, error);
  }
}

// The user's callbacks, in the trainer's words.
void SetCallbacks(const Task& task, Trainer::Options* training) {
  const Callbacks& callbacks = task.callbacks();
  if (callbacks.on_step != nullptr) {
    training->on_step = [&callbacks](int64_t number, const Learner::Gradient& gradient) {
      const double loss = gradient.loss_sum / static_cast<double>(gradient.samples);
      return Guarded("on_step", [&] { callbacks.on_step({number, gradient.samples, loss}); });
    };
  }
  if (callbacks.on_epoch != nullptr) {
    training->on_epoch = [&callbacks](const EvaluationResult& result) {
      Callbacks::Epoch epoch{result.epoch(), result.samples(), result.loss(), {}};
      for (const MetricValue& metric : result.metric()) {
        epoch.metrics[metric.name()] = metric.value();
      }
      return Guarded("on_epoch", [&] { callbacks.on_epoch(epoch); });
    };
  }
  if (callbacks.on_end != nullptr) {
    training->on_end = [&task, &callbacks] {
      return Guarded("on_end", [&] { callbacks.on_end(task.module()); });
    };
  }
}

// A metric that the job names must be one that the objective measures.
absl::Status CheckMetrics(const Objective& objective, const std::string& best_by) {
  std::set<std::string> names = {"loss"};
  for (const Metric& metric : objective.metrics) {
    const bool is_name = !metric.name.empty() &&
                         std::all_of(metric.name.begin(), metric.name.end(), [](char character) {
                           return absl::ascii_isalnum(character) || character == '_';
                         });
    if (!is_name) {
      return absl::InvalidArgumentError(absl::StrCat("the objective has a metric named '",
                                                     metric.name,
                                                     "'; expected letters, digits and '_'"));
    }
    if (!names.insert(metric.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the objective has two metrics named '", metric.name, "'"));
    }
  }
  if (best_by.empty() || names.count(best_by) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "training.best_by is \"", best_by, "\"; this program measures ", absl::StrJoin(names, ", ")));
}

// What a worker does once it holds a slot and its model is laid out.
absl::Status Train(const Task& task, const WorkerOptions& options, const JoinReply& joined,
                   FlatModel* model, CoordinatorClient* coordinator) {
  const absl::StatusOr<BlockMap> block_map = BlockMap::Create(
      model->layout(), joined.job().wire().block_bytes(), static_cast<int>(options.servers.size()));
  if (!block_map.ok()) return block_map.status();

  ParameterClient::Options client;
  client.servers = options.servers;
  client.layout = model->layout();
  client.block_map = *block_map;
  client.job = joined.job();
  client.job_id = joined.job_id();
  client.slot = joined.slot();
  client.incarnation = joined.incarnation();
  client.push_segment = model->push_segment();
  client.patience = options.patience;
  client.log = options.log;
  client.clock = options.clock;
  client.stop = options.stop;
  const absl::StatusOr<std::unique_ptr<ParameterClient>> parameters =
      ParameterClient::Create(std::move(client));
  if (!parameters.ok()) return parameters.status();

  const double parts = static_cast<double>(options.servers.size()) + 1;
  const Heartbeat heartbeat(
      RenewalInterval(joined.job()),
      [&](absl::Duration timeout) {
        const absl::Status renewed = coordinator->RenewSlot(timeout / parts);
        (*parameters)->Renew(timeout / parts);
        return renewed;
      },
      [&](const absl::Status& lost) { options.stop->Stop(std::string(lost.message())); });

  Learner::Options learning;
  learning.batch_size = joined.job().training().batch_size();
  learning.clip_norm = joined.job().training().clip_norm();
  learning.check_finite = joined.job().training().nonfinite() != SKIP_BLOCK;
  learning.block_map = &*block_map;
  learning.clock = options.clock;
  Learner learner(task, model, learning);

  ModelHandover::Options keeping;
  keeping.job = joined.job();
  keeping.transform = task.data().transform;
  keeping.module = &task.module();
  keeping.layout = &model->layout();
  keeping.coordinator = coordinator;
  keeping.log = options.log;
  ModelHandover handover(std::move(keeping));

  Trainer::Options training;
  training.job = joined.job();
  training.slot = joined.slot();
  training.train_samples = task.data().train->size();
  training.slow = options.slow;
  training.progress_interval = options.progress_interval;
  training.print = options.print;
  training.model = model;
  training.learner = &learner;
  training.parameters = parameters->get();
  training.coordinator = coordinator;
  training.handover = &handover;
  training.clock = options.clock;
  training.stop = options.stop;
  SetCallbacks(task, &training);
  Trainer trainer(std::move(training));

  const absl::Status trained = trainer.Run();
  if (absl::Status lost = heartbeat.status(); !lost.ok()) return LostSlot(joined.slot(), lost);
  if (!trained.ok()) {
    // The first error is the one to tell.
    (*parameters)->Leave().IgnoreError();
    return trained;
  }
  options.print(
      absl::StrCat("torchps_worker done slot=", joined.slot(), " pushes=", trainer.pushes()));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunWorker(const Task& task, WorkerOptions options) {
  if (!task.status().ok()) return task.status();
  if (options.servers.empty()) return absl::InvalidArgumentError("no server is given");
  if (task.data().train == nullptr || task.data().train->size() == 0) {
    return absl::InvalidArgumentError("the task has no training sample");
  }
  if (absl::Status status = CheckDevice(options.device); !status.ok()) return status;
  const absl::Status metrics = CheckMetrics(task.objective(), options.job.training().best_by());
  if (!metrics.ok()) return metrics;
  if (absl::Status status = Initialize(task, options); !status.ok()) return status;
  const auto group_of = [&](const std::string& name) {
    return GroupOf(options.job.optimizer(), name);
  };
  const absl::StatusOr<ModelLayout> layout = FlatModel::LayoutOf(task.module(), group_of);
  if (!layout.ok()) return layout.status();

  CoordinatorClient::Options coordination;
  coordination.server = options.servers.front();
  coordination.patience = options.patience;
  coordination.log = options.log;
  coordination.clock = options.clock;
  coordination.stop = options.stop;
  CoordinatorClient coordinator(std::move(coordination));
  const absl::StatusOr<JoinReply> joined =
      coordinator.Join(MakeJoinRequest(options, *layout, task));
  if (!joined.ok()) return joined.status();
  // From here on the slots' draws (dropout) differ, though all began with the same parameters.
  torch::manual_seed(joined->job().seed() + static_cast<uint64_t>(joined->slot()) + 1);

  // Only now, for which GPU it is may follow from the slot.
  const absl::StatusOr<std::unique_ptr<FlatModel>> model =
      LayOut(task, options, *joined, group_of, &coordinator);
  const absl::Status trained =
      model.ok() ? Train(task, options, *joined, model->get(), &coordinator) : model.status();
  const absl::Status left = coordinator.LeaveJob(std::string(trained.message()));
  // Done is done; a coordinator that went away meanwhile will see the lease run out.
  if (!left.ok()) options.log(absl::StrCat("left without a farewell: ", left.message()));
  return trained;
}

}  // namespace torchps
