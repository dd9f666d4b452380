#include "torchps/worker/slot/worker_slot.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torch/utils.h"
#include "torchps/client/calls/address_resolver.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/slot_upkeep.h"
#include "torchps/client/stage_layouts.h"
#include "torchps/data/preprocessing.h"
#include "torchps/job/local_steps.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/worker/device.h"
#include "torchps/worker/device/encoded_outbox.h"
#include "torchps/worker/finish_gradient.h"
#include "torchps/worker/slot/worker_options.h"
#include "torchps/worker/stages/slot_members.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/state_file.h"

namespace torchps {
namespace {

// Number of renewals in the time of a lease, so that the slot survives two lost renewals.
constexpr double kRenewalsPerLease = 3;

absl::Duration RenewalInterval(const JobSpec& job) {
  return absl::Seconds(job.membership().lease_seconds() / kRenewalsPerLease);
}

// True if a server could read this worker's memory.
bool MayShare(const WorkerOptions& options) {
  return options.job.wire().shared_memory() &&
         std::any_of(options.servers.begin(), options.servers.end(),
                     [](const ServerEndpoint& server) {
                       return IsLocalAddress(GetLatest(server).address);
                     });
}

absl::Status LostSlot(SlotId slot, const absl::Status& why) {
  return absl::AbortedError(
      absl::StrCat("slot ", slot, " no longer belongs to this process: ", why.message()));
}

CoordinatorClient::Options CoordinatorOptions(const WorkerOptions& options) {
  CoordinatorClient::Options coordination;
  coordination.server = options.servers.front();
  coordination.patience = options.patience;
  coordination.log = options.log;
  coordination.clock = options.clock;
  coordination.stop = options.stop;
  return coordination;
}

}  // namespace

absl::Status LoadInitialState(torch::nn::Module& module, const WorkerOptions& options) {
  const ModelSpec& model = options.job.model();
  if (model.init_from().empty()) return absl::OkStatus();
  std::vector<std::string> unmatched;
  const absl::Status loaded = LoadState(
      module, model.init_from(), model.init_partial() ? Match::kCommon : Match::kAll, &unmatched);
  if (!loaded.ok()) {
    return absl::Status(loaded.code(), absl::StrCat("model.init_from: ", loaded.message()));
  }
  if (!unmatched.empty()) {
    options.log(absl::StrCat("model.init_from: only the file or only the module has ",
                             absl::StrJoin(unmatched, ", "), "; these are left unchanged"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorkerSlot>> WorkerSlot::Join(torch::nn::Module& module, Data data,
                                                             WorkerOptions options) {
  if (options.servers.empty()) return absl::InvalidArgumentError("no servers are given");
  if (absl::Status status = CheckPlacement(options, module); !status.ok()) return status;
  if (absl::Status status = LoadInitialState(module, options); !status.ok()) return status;
  const JobSpec job = options.job;
  const std::optional<Replica>& replica = data.replica;
  const auto group_of = [&job, &replica](const std::string& name) {
    return GetGroup(job.optimizer(), replica.has_value() ? replica->full_name(name) : name);
  };
  const absl::StatusOr<ModelLayout> layout =
      replica.has_value() ? JoinLayouts(replica->layouts) : LayoutOfModule(module, group_of);
  if (!layout.ok()) return layout.status();
  const absl::Status groups = CheckGroupsAreUsed(job.optimizer(), *layout);
  if (!groups.ok()) return groups;

  std::unique_ptr<WorkerSlot> slot(new WorkerSlot(module, data, std::move(options)));
  slot->whole_layout_ = *layout;
  if (absl::Status taken = slot->TakeSlot(*layout); !taken.ok()) return taken;
  // Lays the module out after joining, because the choice of the GPU may depend on the slot.
  absl::Status status = slot->LayOut(group_of);
  if (status.ok()) status = slot->Connect();
  if (!status.ok()) return slot->Leave(status);
  return slot;
}

WorkerSlot::WorkerSlot(torch::nn::Module& module, Data data, WorkerOptions options)
    : module_(module),
      data_(std::move(data)),
      options_(std::move(options)),
      pulse_(options_.clock),
      coordinator_(CoordinatorOptions(options_)) {}

absl::Status WorkerSlot::TakeSlot(const ModelLayout& layout) {
  JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_job() = options_.job;
  SetPreprocessing(data_.metadata, request.mutable_job());
  *request.mutable_layout() = EncodeLayout(layout);
  request.set_wanted_slot(options_.slot);
  request.set_predecessor_died(options_.predecessor_died);
  request.set_nonce(DrawNonce());
  request.set_host(HostName());
  const std::vector<ReplicaMember> members = data_.replica.has_value()
                                                 ? data_.replica->members
                                                 : GetMembers(options_, layout, request.host());
  request.set_device(members.empty() ? options_.device.str() : DevicesOfMembers(members));
  for (const ReplicaMember& member : members) *request.add_member() = member;
  if (!data_.replica.has_value()) {
    // A state that a file cannot store is reported when the slot is asked to store it.
    const absl::StatusOr<StateFile> state = StateFile::Of(module_, {});
    if (state.ok()) request.set_state_bytes(state->tensor_bytes());
  }
  request.set_train_samples(data_.train_samples);
  request.set_data_fingerprint(data_.fingerprint.number());
  const std::string& model = options_.job.model().name();
  // A process with only one stage reports the class of the whole model, not the class of its
  // module.
  const std::string own = data_.replica.has_value() ? "Stages" : module_.name();
  request.set_model(model.empty() ? own : model);
  request.set_data(data_.description);
  request.set_server_count(static_cast<int>(options_.servers.size()));
  for (const ServerEndpoint& server : options_.servers) {
    request.add_server_address(GetAddress(server));
  }
  absl::StatusOr<JoinReply> joined = coordinator_.Join(request);
  if (!joined.ok()) return joined.status();
  joined_ = *std::move(joined);
  // Makes random draws (dropout) differ between slots. The initial parameters were drawn before.
  torch::manual_seed(job().seed() + static_cast<uint64_t>(slot()) + 1);
  return absl::OkStatus();
}

absl::Status WorkerSlot::LayOut(const ModuleTensors::GetGroup& group_of) {
  // Initializing a GPU for the first time may take longer than a lease.
  const Heartbeat heartbeat(
      RenewalInterval(job()),
      [&](absl::Duration timeout) { return coordinator_.RenewSlot(timeout).status(); },
      [&](const absl::Status& lost) { options_.stop->Stop(std::string(lost.message())); });
  const Placement placement = MakePlacement(options_, slot());
  if (absl::Status status = UseDevice(placement.devices().front()); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<FlatModel>> model =
      FlatModel::Create(module_, placement, group_of, SharedMemory());
  if (absl::Status lost = heartbeat.status(); !lost.ok()) return LostSlot(slot(), lost);
  if (!model.ok()) return model.status();
  model_ = *std::move(model);
  if (!model_->not_shared().ok()) {
    options_.log(absl::StrCat("gradients go to servers on this machine through the network: ",
                              model_->not_shared().message()));
  }
  if (const std::string& name = model_->channels_last_name(); !name.empty()) {
    options_.log(absl::StrCat("'", name,
                              "' was channels-last and is now contiguous, as on the servers; ",
                              "activations are channels-last if the input is"));
  }
  return absl::OkStatus();
}

FlatModel::Shared WorkerSlot::SharedMemory() const {
  if (!MayShare(options_) || data_.replica.has_value()) return FlatModel::Shared::kNothing;
  const bool whole = options_.copies_whole_gradients || NeedsWholeGradient(job().training()) ||
                     HasLocalSteps(job()) || !options_.further_devices.empty();
  return whole ? FlatModel::Shared::kGradients : FlatModel::Shared::kForOutbox;
}

absl::Status WorkerSlot::Connect() {
  absl::StatusOr<BlockMap> block_map = BlockMap::Create(whole_layout_, job().wire().block_bytes(),
                                                        static_cast<int>(options_.servers.size()));
  if (block_map.ok() && data_.replica.has_value()) {
    block_map = BlocksOfStage(*block_map, data_.replica->layouts, /*stage=*/0);
  }
  if (!block_map.ok()) return block_map.status();
  block_map_ = std::make_unique<BlockMap>(*std::move(block_map));
  device_work_ = std::make_unique<DeviceWork>(options_, job(), *block_map_, model_.get());
  device_work_->Link();
  // If the model is in stages, the processes compute the norm together on their hosts.
  if (!data_.replica.has_value()) device_work_->Scan();

  ParameterClient::Options client;
  client.servers = options_.servers;
  client.layout = model_->layout();
  client.block_map = *block_map_;
  if (data_.replica.has_value()) client.whole_layout = whole_layout_;
  client.job = job();
  client.job_id = joined_.job_id();
  client.resumed_checkpoint = joined_.resumed_checkpoint();
  client.slot = slot();
  client.incarnation = joined_.incarnation();
  client.push_segment = model_->push_segment();
  client.patience = options_.patience;
  client.log = options_.log;
  client.clock = options_.clock;
  client.stop = options_.stop;
  absl::StatusOr<std::unique_ptr<ParameterClient>> parameters =
      ParameterClient::Create(std::move(client));
  if (!parameters.ok()) return parameters.status();
  parameters_ = *std::move(parameters);

  SlotUpkeep::Options upkeep;
  upkeep.slot = slot();
  upkeep.lease = absl::Seconds(job().membership().lease_seconds());
  if (const double most = job().consistency().progress_timeout(); most > 0) {
    upkeep.progress_timeout = absl::Seconds(most);
  }
  upkeep.log = options_.log;
  upkeep.calls = this;
  upkeep.clock = options_.clock;
  upkeep_ = std::make_unique<SlotUpkeep>(std::move(upkeep));
  heartbeat_ = std::make_unique<Heartbeat>(
      RenewalInterval(job()), [this](absl::Duration timeout) { return upkeep_->Renew(timeout); },
      [this](const absl::Status& lost) { options_.stop->Stop(std::string(lost.message())); },
      [this] { return upkeep_->pause(); });
  return absl::OkStatus();
}

absl::StatusOr<RenewSlotReply> WorkerSlot::RenewSlot(absl::Duration timeout,
                                                     RenewSlotRequest request) {
  return coordinator_.RenewSlot(timeout, std::move(request));
}

Renewals WorkerSlot::RenewLeases(absl::Duration timeout, absl::Duration stalled_for,
                                 absl::Duration longest_pause) {
  return parameters_->leases().Renew(timeout, stalled_for, longest_pause);
}

void WorkerSlot::StepAside(absl::Duration timeout, const std::vector<int>& silent) {
  parameters_->leases().StepAside(timeout, silent);
}

void WorkerSlot::PreparePushesOnDevice() {
  EncodedOutbox* const encoded = parameters_->CanTakeEncoded() ? device_work_->Encode() : nullptr;
  if (encoded != nullptr) return parameters_->TakeEncoded(encoded);
  device_work_->Look();
}

absl::Status WorkerSlot::BeginGradient() {
  if (absl::Status status = model_->CheckModule(module_); !status.ok()) return status;
  model_->ZeroGradients();
  if (watch_ == nullptr) {
    watch_ = std::make_unique<GradientWatch>(model_->layout(), *block_map_, model_->parameters());
  }
  watch_->BeginStep();
  return absl::OkStatus();
}

ElementRuns WorkerSlot::AbsentElements() const { return watch_->Absent(model_->gradients()); }

ModelHandover::Options WorkerSlot::HandoverOptions() {
  ModelHandover::Options options;
  options.job = job();
  options.module = &module_;
  options.layout = &model_->layout();
  options.coordinator = &coordinator_;
  options.log = options_.log;
  return options;
}

StepLoop* WorkerSlot::MakeLoop(LoopHooks* hooks, bool may_prefetch) {
  StepLoop::Options loop;
  loop.job = job();
  // One process alone cannot restart a step, because it holds only a part.
  if (data_.replica.has_value()) loop.job.mutable_consistency()->set_stop_stale(false);
  loop.slot = slot();
  loop.train_samples = data_.train_samples;
  loop.may_prefetch = may_prefetch;
  loop.progress_interval = options_.progress_interval;
  loop.print = options_.print;
  loop.model = model_.get();
  loop.parameters = parameters_.get();
  loop.coordinator = &coordinator_;
  loop.hooks = hooks;
  loop.pulse = &pulse_;
  loop.clock = options_.clock;
  loop.stop = options_.stop;
  loop_ = std::make_unique<StepLoop>(std::move(loop));
  return loop_.get();
}

SimulatedSlowdown WorkerSlot::MakeHandicap() const {
  SimulatedSlowdown::Options handicap = options_.handicap;
  if (handicap.wait == nullptr) {
    handicap.wait = [stop = options_.stop](absl::Duration time) { stop->WaitFor(time); };
  }
  const TrainingSpec& training = job().training();
  const int64_t batch = int64_t{training.batch_size()} * std::max(training.accumulate(), 1);
  return SimulatedSlowdown(std::move(handicap), batch);
}

absl::Status WorkerSlot::Leave(const absl::Status& trained) {
  absl::Status outcome = trained;
  if (loop_ != nullptr) loop_->Close();
  if (heartbeat_ != nullptr) {
    if (absl::Status lost = heartbeat_->status(); !lost.ok()) {
      outcome = LostSlot(slot(), lost);
    } else if (!trained.ok()) {
      // Ignores an error of leaving, because `trained`, the first error, is reported.
      parameters_->Leave().IgnoreError();
    }
    heartbeat_.reset();
  }
  if (outcome.ok()) {
    options_.print(absl::StrCat("torchps_worker done slot=", slot(), " pushes=", loop_->pushes()));
  }
  const absl::Status left = coordinator_.LeaveJob(std::string(outcome.message()));
  // Ignores this error: if the coordinator is unreachable, the slot's lease expires.
  if (!left.ok())
    options_.log(absl::StrCat("cannot report leaving to the coordinator: ", left.message()));
  return outcome;
}

}  // namespace torchps
