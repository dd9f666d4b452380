#include "tests/simulation/sim_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/transport/layout_codec.h"

namespace torchps::simulation {
namespace {

constexpr int kRenewalsPerLease = 3;

}  // namespace

SimWorker::SimWorker(World* world, Network* network, std::vector<SimServer*> servers,
                     const Scenario* scenario, int seat)
    : world_(world),
      network_(network),
      servers_(std::move(servers)),
      scenario_(scenario),
      step_time_(world->Between(scenario->fastest_step, scenario->slowest_step)),
      process_(world, absl::StrCat("worker ", seat)) {}

void SimWorker::Start() {
  process_.Start();
  nonce_ = world_->Draw() | 1;
  joined_.Clear();
  known_.assign(servers_.size(), Server());
  versions_.assign(scenario_->map.blocks().size(), 0);
  acknowledged_.assign(scenario_->map.blocks().size(), {});
  kept_.assign(scenario_->map.blocks().size(), 0);
  clock_ = 0;
  entered_ = pulled_ = idle_ = false;
  calls_ = 0;
  finished_lease_ = 0;
  lease_.Clear();
  stops_in_a_row_ = 0;
  lost_.clear();
  push_ = ahead_ = nullptr;
  freeze_ = absl::ZeroDuration();
  world_->Trace(process_.name(), " starts");
  Join();
}

NextWorkRequest SimWorker::Unfinished() const {
  NextWorkRequest request;
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_finished_lease(lease_.id());
  request.set_call(calls_ + 1);
  return request;
}

void SimWorker::Kill() {
  process_.Die();
  network_->OnDeath(&process_);
}

void SimWorker::Exit(const absl::Status& why) {
  world_->Trace(process_.name(), " ends: ", why.ToString());
  // A coordinator whose disk failed before it died restarts from an older state. It may then refuse
  // this worker with INVALID_ARGUMENT.
  const bool is_forgotten = servers_.front()->has_forgotten() && absl::IsInvalidArgument(why);
  if (!absl::IsAborted(why) && !absl::IsCancelled(why) && !is_forgotten) {
    world_->Violation(process_.name(),
                      " was refused although it followed the protocol: ", why.ToString());
  }
  Kill();
}

void SimWorker::StepAside() {
  if (joined_.incarnation() == 0) return;
  for (SimServer* const server : servers_) {
    // The worker must say Hello again before it can renew the lease.
    known_[server->index()].greeted = false;
    LeaveRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_server_incarnation(known_[server->index()].life);
    network_->Call<LeaveReply>(
        &process_, server->process(), kPromptTimeout,
        {[server, request](const SimServer::Arrival& arrival) { server->Leave(arrival, request); }},
        [](const absl::StatusOr<LeaveReply>&) {});
  }
}

void SimWorker::LeaveEarly() {
  if (joined_.incarnation() == 0) return;
  StepAside();
  LeaveJobRequest request;
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_reason("wanted elsewhere");
  SimServer* const coordinator = servers_.front();
  network_->Call<LeaveJobReply>(&process_, coordinator->process(), kPromptTimeout,
                                {[coordinator, request](const SimServer::Arrival& arrival) {
                                  coordinator->Prompt(arrival, &JobCoordinator::LeaveJob, request);
                                }},
                                [](const absl::StatusOr<LeaveJobReply>&) {});
  Exit(absl::CancelledError("left early"));
}

template <typename Response, typename Send>
void SimWorker::Ask(absl::Duration timeout, Send send, std::function<void(const Response&)> then) {
  SimServer* const coordinator = servers_.front();
  network_->Call<Response>(
      &process_, coordinator->process(), timeout,
      {[coordinator, send](const SimServer::Arrival& arrival) { send(coordinator, arrival); }},
      [this, timeout, send, then = std::move(then)](const absl::StatusOr<Response>& reply) {
        if (reply.ok()) {
          then(*reply);
        } else if (MayRetry(reply.status())) {
          process_.After(world_->Between(kFirstBackoff, kLastBackoff),
                         [this, timeout, send, then] { Ask<Response>(timeout, send, then); });
        } else {
          Exit(reply.status());
        }
      });
}

void SimWorker::Join() {
  JoinRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_job() = scenario_->job;
  *request.mutable_layout() = EncodeLayout(scenario_->layout);
  request.set_wanted_slot(-1);
  request.set_nonce(nonce_);
  request.set_host(process_.name());
  request.set_device("none");
  request.set_train_samples(scenario_->train_samples);
  request.set_server_count(static_cast<int>(servers_.size()));
  Ask<JoinReply>(
      kPromptTimeout,
      [request](SimServer* coordinator, const SimServer::Arrival& arrival) {
        coordinator->Join(arrival, request);
      },
      [this](const JoinReply& reply) {
        joined_ = reply;
        world_->Trace(process_.name(), " holds slot ", reply.slot(), " as incarnation ",
                      reply.incarnation());
        Beat();
        Enter([this] { AwaitStart(/*initialized=*/false); });
      });
}

void SimWorker::Beat() {
  process_.After(scenario_->lease() / kRenewalsPerLease, [this] { Beat(); });
  RenewSlotRequest slot;
  slot.set_slot(joined_.slot());
  slot.set_incarnation(joined_.incarnation());
  SimServer* const coordinator = servers_.front();
  network_->Call<RenewSlotReply>(&process_, coordinator->process(), kPromptTimeout,
                                 {[coordinator, slot](const SimServer::Arrival& arrival) {
                                   coordinator->Prompt(arrival, &JobCoordinator::RenewSlot, slot);
                                 }},
                                 [this](const absl::StatusOr<RenewSlotReply>& reply) {
                                   if (!reply.ok() && !MayRetry(reply.status()))
                                     Exit(reply.status());
                                 });
  for (SimServer* const server : servers_) {
    const Server& known = known_[server->index()];
    if (!known.greeted) continue;
    RenewRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_server_incarnation(known.life);
    network_->Call<RenewReply>(
        &process_, server->process(), kPromptTimeout,
        {[server, request](const SimServer::Arrival& arrival) { server->Renew(arrival, request); }},
        [this, server](const absl::StatusOr<RenewReply>& reply) {
          if (absl::IsAborted(reply.status())) Restore(server);
        });
  }
}

void SimWorker::Restore(SimServer* server) {
  HelloRequest request = HelloTo(server->index());
  request.set_only_restores(true);
  request.set_continues(true);
  network_->Call<HelloReply>(
      &process_, server->process(), kPromptTimeout,
      {[server, request](const SimServer::Arrival& arrival) { server->Hello(arrival, request); }},
      [](const absl::StatusOr<HelloReply>&) {});
}

void SimWorker::Enter(Then then) {
  if (entered_) {
    then();
    return;
  }
  Round round;
  round.forgotten = Forgotten::kFail;
  round.attempt = [this](int server, Ended ended) {
    Greet(server, /*round=*/nullptr, std::move(ended));
  };
  round.then = [this, then = std::move(then)] {
    for (const Server& known : known_) clock_ = std::max(clock_, known.start_clock);
    entered_ = true;
    then();
  };
  Begin(std::move(round));
}

void SimWorker::AwaitStart(bool initialized, uint32_t initialization) {
  AwaitStartRequest request;
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_initialized(initialized);
  request.set_initialization(initialization);
  Ask<AwaitStartReply>(
      kParkTimeout,
      [request](SimServer* coordinator, const SimServer::Arrival& arrival) {
        coordinator->AwaitStart(arrival, request);
      },
      [this](const AwaitStartReply& reply) {
        switch (reply.action()) {
          case AwaitStartReply::INITIALIZE: {
            const TransferPointer push = BeginPush(/*step=*/0);
            WhenDone(push, [this, asked = reply.initialization()] {
              AwaitStart(/*initialized=*/true, asked);
            });
            break;
          }
          case AwaitStartReply::START:
            NextWork();
            break;
          default:
            Finish();
        }
      });
}

void SimWorker::NextWork() {
  // If the server collects pushes, pulls the values before it asks for the next lease.
  if (scenario_->collects() && entered_ && !pulled_) {
    PullValues([this] {
      pulled_ = true;
      NextWork();
    });
    return;
  }
  NextWorkRequest request;
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_finished_lease(finished_lease_);
  *request.mutable_lost() = {lost_.begin(), lost_.end()};
  if (finished_lease_ != 0) {
    request.mutable_figures()->set_samples(static_cast<uint64_t>(lease_.end() - lease_.begin()));
    request.mutable_figures()->set_compute_seconds(absl::ToDoubleSeconds(step_time_));
  }
  lost_.clear();
  request.set_call(++calls_);
  request.set_idle(idle_);
  finished_lease_ = 0;
  Ask<NextWorkReply>(
      idle_ ? kParkTimeout : kPromptTimeout,
      [request](SimServer* coordinator, const SimServer::Arrival& arrival) {
        coordinator->NextWork(arrival, request);
      },
      [this](const NextWorkReply& reply) { TakeWork(reply); });
}

void SimWorker::TakeWork(const NextWorkReply& work) {
  idle_ = work.work_case() == NextWorkReply::kGoIdle;
  switch (work.work_case()) {
    case NextWorkReply::kLease:
      lease_ = work.lease();
      position_ = lease_.begin();
      Enter([this] { NextStep(); });
      break;
    case NextWorkReply::kEvaluateEpoch:
      pulled_ = false;
      Evaluate(work.evaluate_epoch());
      break;
    case NextWorkReply::kGoIdle:
      LeaveServers([this] { NextWork(); });
      break;
    default:
      LeaveServers([this] { Finish(); });
  }
}

void SimWorker::Evaluate(int epoch) {
  const Then report = [this, epoch] {
    ReportEvaluationRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.mutable_result()->set_epoch(epoch);
    Ask<ReportEvaluationReply>(
        kPromptTimeout,
        [request](SimServer* coordinator, const SimServer::Arrival& arrival) {
          coordinator->Prompt(arrival, &JobCoordinator::ReportEvaluation, request);
        },
        [this](const ReportEvaluationReply&) { NextWork(); });
  };
  const Then evaluate = [this, report] { process_.After(step_time_, report); };
  const Then read = [this, evaluate] {
    const TransferPointer pull = BeginPull(clock_, /*ahead=*/false, /*read_only=*/true);
    WhenDone(pull, [this, evaluate] {
      if (entered_) {
        evaluate();
      } else {
        // The worker had left the servers. The pull may have said Hello to a restarted server, so
        // it leaves again.
        TellLeaving(evaluate);
      }
    });
  };
  if (scenario_->synchronous()) {
    read();
  } else {
    LeaveServers(read);
  }
}

void SimWorker::LeaveServers(Then then) {
  if (ahead_ != nullptr) {
    if (const RoundPointer round = ahead_->round.lock()) round->dropped = true;
    ahead_ = nullptr;
  }
  pulled_ = false;
  if (!entered_) {
    then();
    return;
  }
  entered_ = false;
  TellLeaving(std::move(then));
}

void SimWorker::TellLeaving(Then then) {
  Round round;
  round.forgotten = Forgotten::kDone;
  round.attempt = [this](int server, Ended ended) {
    known_[server].greeted = false;
    LeaveRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_server_incarnation(known_[server].life);
    SimServer* const to = servers_[server];
    network_->Call<LeaveReply>(
        &process_, to->process(), kPromptTimeout,
        {[to, request](const SimServer::Arrival& arrival) { to->Leave(arrival, request); }},
        [ended = std::move(ended)](const absl::StatusOr<LeaveReply>& reply) {
          ended(reply.status());
        });
  };
  round.then = std::move(then);
  Begin(std::move(round));
}

void SimWorker::Finish() {
  LeaveJobRequest request;
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  SimServer* const coordinator = servers_.front();
  finished_ = true;
  network_->Call<LeaveJobReply>(
      &process_, coordinator->process(), kPromptTimeout,
      {[coordinator, request](const SimServer::Arrival& arrival) {
        coordinator->Prompt(arrival, &JobCoordinator::LeaveJob, request);
      }},
      [this](const absl::StatusOr<LeaveJobReply>&) { Exit(absl::CancelledError("done")); });
}

}  // namespace torchps::simulation
