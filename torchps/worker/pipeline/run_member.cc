#include "torchps/worker/pipeline/run_member.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torch/utils.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/parameter_client.h"
#include "torchps/client/stage_layouts.h"
#include "torchps/common/stop_latch.h"
#include "torchps/data/dataset.h"
#include "torchps/job/local_steps.h"
#include "torchps/job/optimizer_fields.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/worker/device.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/module_tensors.h"
#include "torchps/worker/pipeline/follower.h"
#include "torchps/worker/pipeline/leader.h"
#include "torchps/worker/pipeline/stage_work.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/slot/worker_slot.h"
#include "torchps/worker/stages/slot_members.h"
#include "torchps/worker/torch_error.h"
#include "torchps/worker/trainer.h"

namespace torchps {
namespace {

absl::Status CheckJob(const JobSpec& job) {
  const auto refuse = [](const char* what) {
    return absl::FailedPreconditionError(absl::StrCat("a model over several processes cannot use ",
                                                      what, "; remove it from the job"));
  };
  if (HasLocalSteps(job)) return refuse("local steps");
  if (!job.model().init_from().empty()) return refuse("model.init_from");
  return absl::OkStatus();
}

ModuleTensors::GetGroup GetGroups(const MemberTask& task, const JobSpec& job, int stage) {
  return [&task, &job, stage](const std::string& name) {
    return GetGroup(job.optimizer(), task.FullName(stage, name));
  };
}

// Returns `layout` with the names of the whole model.
absl::StatusOr<ModelLayout> InWhole(const MemberTask& task, int stage, const ModelLayout& layout) {
  std::vector<Segment> segments = layout.segments();
  for (Segment& segment : segments) segment.name = task.FullName(stage, segment.name);
  return ModelLayout::Create(std::move(segments));
}

absl::StatusOr<uint64_t> GetFingerprint(const MemberTask& task) {
  try {
    return torchps::GetFingerprint(task.data).number();
  } catch (...) {
    return ThrownError("Fingerprint");
  }
}

absl::StatusOr<RendezvousRequest> Introduce(const MemberTask& task, const WorkerOptions& options,
                                            const Exchange& exchange) {
  absl::StatusOr<ModelLayout> layout =
      LayoutOfModule(*task.stage.module(), GetGroups(task, options.job, exchange.stage()));
  if (layout.ok()) layout = InWhole(task, exchange.stage(), *layout);
  if (!layout.ok()) {
    return absl::Status(layout.status().code(),
                        absl::StrCat("stage ", exchange.stage(), ": ", layout.status().message()));
  }
  const absl::StatusOr<uint64_t> fingerprint = GetFingerprint(task);
  if (!fingerprint.ok()) return fingerprint.status();
  RendezvousRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_stage(exchange.stage());
  request.set_stages(exchange.stages());
  request.set_nonce(DrawNonce());
  *request.mutable_layout() = EncodeLayout(*layout);
  *request.mutable_member() = ProcessMember(exchange.stage(), options.device, *layout, HostName());
  request.set_train_samples(task.data.train->size());
  request.set_data_fingerprint(*fingerprint);
  return request;
}

StageWork::Options WorkOptions(const JobSpec& job, const BlockMap* map, FlatModel* model,
                               const WorkerOptions& options, const MemberOptions& member) {
  StageWork::Options work;
  work.job = job;
  work.block_map = map;
  work.model = model;
  work.exchange = member.exchange;
  work.clock = options.clock;
  work.loader_threads = options.loader_threads;
  work.on_phase = member.on_phase;
  return work;
}

// ------------------------------------------------------------------------------------ Leader

RendezvousReply GetBeginning(const WorkerSlot& slot,
                             const std::vector<RendezvousRequest>& members) {
  RendezvousReply reply;
  reply.set_meeting(DrawNonce());
  reply.set_slot(slot.slot());
  reply.set_incarnation(slot.joined().incarnation());
  reply.set_job_id(slot.joined().job_id());
  reply.set_resumed_checkpoint(slot.joined().resumed_checkpoint());
  *reply.mutable_job() = slot.job();
  for (const RendezvousRequest& member : members) *reply.add_layout() = member.layout();
  return reply;
}

absl::Status TrainAsLeader(const MemberTask& task, const WorkerOptions& options,
                           const MemberOptions& member, WorkerSlot* slot) {
  StageWork::Options working =
      WorkOptions(slot->job(), &slot->block_map(), slot->model(), options, member);
  working.observer = slot;
  StageWork work(task, std::move(working));
  ReplicaLeader leader(
      {member.exchange, &work, slot->parameters(), &task.objective, options.micro_batches});
  if (absl::Status ready = leader.AwaitReady(); !ready.ok()) return ready;

  SimulatedSlowdown handicap = slot->MakeHandicap();
  Trainer::Options training;
  training.compute = [&leader](const StepWork& step, Learner::Observer* observer) {
    return leader.Compute(step, observer);
  };
  training.loop = slot->MakeLoop(&leader, /*may_prefetch=*/false);
  training.handicap = &handicap;
  const absl::Status trained = Trainer(std::move(training)).Run();
  if (trained.ok()) leader.End();
  return trained;
}

absl::Status Lead(const MemberTask& task, const WorkerOptions& options, const MemberOptions& member,
                  const RendezvousRequest& own) {
  absl::StatusOr<std::vector<RendezvousRequest>> members = member.exchange->Gather(own);
  if (!members.ok()) return members.status();
  WorkerSlot::Data data = {static_cast<int64_t>(own.train_samples()), task.data.description,
                           task.data.Metadata(), DataFingerprint::Of(own.data_fingerprint())};
  data.replica.emplace();
  data.replica->full_name = [&task](const std::string& name) {
    return task.FullName(/*number=*/0, name);
  };
  for (const RendezvousRequest& request : *members) {
    const absl::StatusOr<ModelLayout> layout = DecodeLayout(request.layout());
    if (!layout.ok()) {
      return absl::Status(layout.status().code(),
                          absl::StrCat("stage ", request.stage(), ": ", layout.status().message()));
    }
    data.replica->layouts.push_back(*layout);
    data.replica->members.push_back(request.member());
  }
  const absl::StatusOr<std::unique_ptr<WorkerSlot>> slot =
      WorkerSlot::Join(*task.stage.module(), std::move(data), options);
  if (!slot.ok()) return slot.status();
  member.exchange->Begin(GetBeginning(**slot, *members));
  return (*slot)->Leave(TrainAsLeader(task, options, member, slot->get()));
}

// ------------------------------------------------------------------------------------ Followers

absl::Status Follow(const MemberTask& task, const WorkerOptions& options,
                    const MemberOptions& member, const RendezvousRequest& own) {
  const int stage = member.exchange->stage();
  const absl::StatusOr<RendezvousReply> meeting = member.exchange->Meet(own);
  if (!meeting.ok()) return meeting.status();
  const JobSpec& job = meeting->job();
  std::vector<ModelLayout> layouts;
  for (const ModelLayoutProto& proto : meeting->layout()) {
    absl::StatusOr<ModelLayout> layout = DecodeLayout(proto);
    if (!layout.ok()) return layout.status();
    layouts.push_back(*std::move(layout));
  }
  if (static_cast<int>(layouts.size()) != member.exchange->stages()) {
    return absl::InternalError(absl::StrCat("the replica's leader described ", layouts.size(),
                                            " stages; expected ", member.exchange->stages()));
  }
  const absl::StatusOr<ModelLayout> whole = JoinLayouts(layouts);
  if (!whole.ok()) return whole.status();
  absl::StatusOr<BlockMap> map =
      BlockMap::Create(*whole, job.wire().block_bytes(), static_cast<int>(options.servers.size()));
  if (map.ok()) map = BlocksOfStage(*map, layouts, stage);
  if (!map.ok()) return map.status();

  // Random draws (dropout) must differ between slots and between stages.
  const int slots_before = meeting->slot() * member.exchange->stages();
  torch::manual_seed(job.seed() + static_cast<uint64_t>(slots_before + stage) + 1);
  const torch::Device device =
      DeviceOfSlot(options.device, NumberOfMember(meeting->slot(), stage, options.replica));
  if (absl::Status status = UseDevice(device); !status.ok()) return status;
  const absl::StatusOr<std::unique_ptr<FlatModel>> model =
      FlatModel::Create(*task.stage.module(), device, GetGroups(task, job, stage));
  if (!model.ok()) return model.status();

  ParameterClient::Options client;
  client.servers = options.servers;
  client.layout = (*model)->layout();
  client.whole_layout = *whole;
  client.block_map = *map;
  client.job = job;
  client.job_id = meeting->job_id();
  client.resumed_checkpoint = meeting->resumed_checkpoint();
  client.slot = meeting->slot();
  client.incarnation = meeting->incarnation();
  client.patience = options.patience;
  client.log = options.log;
  client.clock = options.clock;
  client.stop = options.stop;
  const absl::StatusOr<std::unique_ptr<ParameterClient>> parameters =
      ParameterClient::Create(std::move(client));
  if (!parameters.ok()) return parameters.status();

  StageWork work(task, WorkOptions(job, &*map, model->get(), options, member));
  ReplicaFollower follower(
      {job, member.exchange, &work, model->get(), parameters->get(), member.on_phase});
  const absl::Status followed = follower.Run();
  if (followed.ok()) {
    options.print(absl::StrCat("torchps_worker done slot=", meeting->slot(), " stage=", stage));
  }
  return followed;
}

}  // namespace

absl::Status RunMember(const MemberTask& task, WorkerOptions options, const MemberOptions& member) {
  if (task.data.train == nullptr || task.data.train->size() == 0) {
    return absl::InvalidArgumentError("the task has no training sample");
  }
  if (absl::Status status = CheckJob(options.job); !status.ok()) return status;
  if (task.objective.weighted_loss != nullptr) {
    return absl::InvalidArgumentError(
        "the objective has a WeightedLoss, which a model over several processes does not support; "
        "expected a loss that is the mean over the batch's samples");
  }
  const absl::Status metrics = CheckMetrics(task.objective, options.job.training().best_by());
  if (!metrics.ok()) return metrics;
  if (absl::Status status = CheckDevice(options.device); !status.ok()) return status;
  const absl::Status precise = CheckPrecision(options.job.training().precision(), options.device);
  if (!precise.ok()) return precise;
  const absl::StatusOr<RendezvousRequest> own = Introduce(task, options, *member.exchange);
  absl::Status ended = !own.ok()                  ? own.status()
                       : member.exchange->leads() ? Lead(task, options, member, *own)
                                                  : Follow(task, options, member, *own);
  // If this process was stopped because the replica ended, returns the reason for that end.
  const absl::Status replica = member.exchange->status();
  const bool stopped_by_it = !replica.ok() && options.stop->reason() == replica.message();
  if (absl::IsCancelled(ended) && stopped_by_it) ended = replica;
  if (!ended.ok()) member.exchange->Fail(ended);
  return ended;
}

}  // namespace torchps
