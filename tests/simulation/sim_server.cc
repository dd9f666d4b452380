#include "tests/simulation/sim_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/testing/job_harness.h"

namespace torchps::simulation {
namespace {

// As Server does it.
constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

SimServer::SimServer(World* world, Network* network, const Scenario* scenario, Fault fault,
                     int index)
    : world_(world),
      network_(network),
      scenario_(scenario),
      fault_(fault),
      index_(index),
      process_(world, absl::StrCat("server ", index)),
      model_(world, scenario, index) {}

void SimServer::Start() {
  process_.Start();
  ParameterServer::Options options;
  options.life = world_->Draw() | 1;
  options.receive_bytes = 1 << 20;
  options.send_bytes = 1 << 20;
  options.clock = world_->clock();
  server_ = std::make_unique<ParameterServer>(options);
  has_job_ = false;
  if (index_ == 0) {
    coordinator_ = std::make_unique<JobCoordinator>(JobCoordinator::Options{world_->Draw()});
    books_ = std::make_unique<BooksModel>(world_, scenario_);
  }
  process_.After(kTick, [this] { Tick(); });
}

void SimServer::Kill() {
  process_.Die();
  model_.OnDeath();
  server_.reset();
  coordinator_.reset();
  network_->OnDeath(&process_);
}

void SimServer::Tick() {
  if (HostedJob* const job = server_->job(); job != nullptr) {
    if (fault_ != Fault::kCountDeadSlot) job->ExpireLeases();
    model_.OnExpiry();
    model_.Check();
  }
  if (coordinator_ != nullptr) {
    coordinator_->Tick(world_->now());
    AfterCoordination();
  }
  process_.After(kTick, [this] { Tick(); });
}

void SimServer::Hello(const Arrival& arrival, const HelloRequest& request) {
  const absl::StatusOr<HelloReply> reply = server_->Hello(request);
  world_->Trace(process_.name(), ": Hello of slot ", request.slot(), " incarnation ",
                request.incarnation(), ": ",
                reply.ok() ? reply->ShortDebugString() : reply.status().ToString());
  if (server_->job() != nullptr && !has_job_) {
    has_job_ = true;
    model_.OnJob(server_->job(), /*restored=*/false, /*from_log=*/false);
  }
  if (reply.ok()) model_.OnHello(request.slot(), request.incarnation(), *reply);
  arrival->Answer(reply);
  model_.Check();
}

void SimServer::Push(const Arrival& arrival, const PushHeader& header, size_t index, size_t count) {
  const absl::StatusOr<HostedJob*> job = server_->JobFor(header.server_life);
  if (!job.ok()) {
    arrival->Answer<PushReply>(job.status());
    return;
  }
  const int64_t length = scenario_->map.blocks()[header.block].length;
  const float gradient =
      header.step == 0 ? 0.0f
                       : GradientOf(header.slot, header.incarnation, header.step, header.block);
  const FramePayload payload =
      header.withheld ? FramePayload() : MakePayload(std::vector<float>(length, gradient));
  const absl::Status pushed = server_->PushFrame(*job, header, payload);
  world_->Trace(process_.name(), ": block ", header.block, " of step ", header.step, " of slot ",
                header.slot, " incarnation ", header.incarnation, " on version ",
                header.base_version, ": ", pushed.ToString());
  model_.OnFrame(header, pushed);
  model_.Check();
  if (!pushed.ok()) {
    arrival->Answer<PushReply>(pushed);
    return;
  }
  const auto answer = [this, arrival, header](const absl::StatusOr<PushReply>& reply) {
    world_->Trace(process_.name(), ": answers step ", header.step, " of slot ", header.slot, ": ",
                  reply.ok() ? "applied" : reply.status().ToString());
    if (reply.ok()) {
      model_.OnAcknowledged(header.slot, header.incarnation, header.step, *reply);
    }
    arrival->Answer(reply);
  };
  if (fault_ == Fault::kAcknowledgeEarly && index == 0 && header.step > 0) {
    PushReply reply;
    for (const BlockId id : scenario_->map.owned_by(index_)) {
      reply.add_block()->set_block(id);
      reply.mutable_block(reply.block_size() - 1)->set_verdict(ACCEPTED);
    }
    answer(reply);
    model_.Check();
    return;
  }
  if (index + 1 < count) return;
  const uint64_t wait = ++last_wait_;
  model_.OnPushEnd(header.slot, header.incarnation);
  const HostedJob::ParkedId parked =
      (*job)->FinishPush(header.slot, header.incarnation, header.step,
                         [this, wait, answer](const absl::StatusOr<PushReply>& reply) {
                           model_.OnWaitOver(wait);
                           answer(reply);
                         });
  if (parked != 0) {
    model_.OnPushParked(wait, header.slot, header.step);
    arrival->OnCancel([this, wait, parked, job = *job] {
      job->CancelPush(parked);
      model_.OnWaitOver(wait);
    });
  }
  model_.Check();
}

void SimServer::Pull(const Arrival& arrival, const PullRequest& request) {
  const absl::StatusOr<HostedJob*> alive = server_->JobFor(request.server_life());
  const auto pulled = std::make_shared<Pulled>();
  if (request.read_only()) {
    HostedJob* const job = server_->job();
    if (job == nullptr || !job->store().initialized()) {
      arrival->Answer<Pulled>(absl::FailedPreconditionError("no values to read yet"));
    } else {
      pulled->floor = job->ReadOnlyPull().floor;
      SendBlocks(arrival, job, request, pulled);
    }
    return;
  }
  if (!alive.ok()) {
    arrival->Answer<Pulled>(alive.status());
    return;
  }
  HostedJob* const job = *alive;
  const uint64_t wait = ++last_wait_;
  const absl::StatusOr<HostedJob::ParkedId> parked =
      job->Pull(request.slot(), request.incarnation(), request.clock(), request.ahead(),
                [this, arrival, request, job, pulled, wait](const HostedJob::PullGrant& grant) {
                  model_.OnWaitOver(wait);
                  world_->Trace(process_.name(), ": slot ", request.slot(), " may read at clock ",
                                request.clock(), ", floor ", grant.floor);
                  model_.OnGrant(request.slot(), request.clock(), grant.floor);
                  pulled->floor = grant.floor;
                  process_.After(absl::ZeroDuration(), [this, arrival, job, request, pulled] {
                    SendBlocks(arrival, job, request, pulled);
                  });
                });
  if (!parked.ok()) {
    arrival->Answer<Pulled>(parked.status());
    return;
  }
  model_.OnPull(request);
  if (*parked != 0) {
    world_->Trace(process_.name(), ": the pull of slot ", request.slot(), " at clock ",
                  request.clock(), " waits");
    model_.OnPullParked(wait, request.slot(),
                        std::max(request.clock(), model_.Clock(request.slot())));
    arrival->OnCancel([this, wait, parked = *parked, job] {
      job->CancelPull(parked);
      model_.OnWaitOver(wait);
    });
  }
  model_.Check();
}

void SimServer::SendBlocks(const Arrival& arrival, HostedJob* job, const PullRequest& request,
                           std::shared_ptr<Pulled> pulled) {
  const size_t index = pulled->blocks.size();
  if (index == job->store().owned()) {
    arrival->Answer<Pulled>(*pulled);
    return;
  }
  const Version have =
      request.have_version().empty() ? 0 : request.have_version(static_cast<int>(index));
  const absl::StatusOr<ParameterStore::Copy> copy =
      job->store().Read(index, job->pull_encoding(), have);
  if (!copy.ok()) {
    arrival->Answer<Pulled>(copy.status());
    return;
  }
  pulled->blocks.push_back({job->store().block_id(index), copy->version, copy->unchanged});
  process_.After(absl::Microseconds(50), [this, arrival, job, request, pulled] {
    SendBlocks(arrival, job, request, pulled);
  });
}

void SimServer::Renew(const Arrival& arrival, const RenewRequest& request) {
  const absl::StatusOr<HostedJob*> job = server_->JobFor(request.server_life());
  if (!job.ok()) {
    arrival->Answer<RenewReply>(job.status());
    return;
  }
  const absl::Status renewed = (*job)->Renew(request.slot(), request.incarnation());
  model_.OnRenew(request.slot(), request.incarnation(), renewed.ok());
  arrival->Answer(renewed.ok() ? absl::StatusOr<RenewReply>(RenewReply()) : renewed);
}

void SimServer::Leave(const Arrival& arrival, const LeaveRequest& request) {
  const absl::StatusOr<HostedJob*> job = server_->JobFor(request.server_life());
  if (!job.ok()) {
    arrival->Answer<LeaveReply>(job.status());
    return;
  }
  world_->Trace(process_.name(), ": slot ", request.slot(), " leaves");
  (*job)->Leave(request.slot(), request.incarnation());
  model_.OnLeave(request.slot(), request.incarnation());
  arrival->Answer<LeaveReply>(LeaveReply());
  model_.Check();
}

void SimServer::AwaitStart(const Arrival& arrival, const AwaitStartRequest& request) {
  const JobCoordinator::ParkedCall parked = coordinator_->AwaitStart(
      request, world_->now(),
      [arrival](const absl::StatusOr<AwaitStartReply>& reply) { arrival->Answer(reply); });
  if (parked != 0) {
    arrival->OnCancel([this, parked] { coordinator_->CancelParked(parked); });
  }
  AfterCoordination();
}

void SimServer::NextWork(const Arrival& arrival, const NextWorkRequest& request) {
  const JobCoordinator::ParkedCall parked = coordinator_->NextWork(
      request, world_->now(), [this, arrival, request](const absl::StatusOr<NextWorkReply>& reply) {
        world_->Trace("coordinator: slot ", request.slot(), " is told ",
                      reply.ok() ? reply->ShortDebugString() : reply.status().ToString());
        if (reply.ok() && reply->has_lease()) {
          books_->OnLease(request.slot(), request.incarnation(), reply->lease());
        }
        arrival->Answer(reply);
      });
  if (parked != 0) {
    arrival->OnCancel([this, parked] { coordinator_->CancelParked(parked); });
  }
  AfterCoordination();
  books_->OnHandedIn(request, Status());
}

JobStatus SimServer::Status() {
  JobStatus status;
  coordinator_->GetJobStatus(
      JobStatusRequest(), world_->now(),
      [&status](const absl::StatusOr<JobStatus>& reply) { status = *reply; });
  AfterCoordination();
  return status;
}

void SimServer::AfterCoordination() {
  for (const std::function<void()>& give : coordinator_->TakeReady()) give();
}

}  // namespace torchps::simulation
