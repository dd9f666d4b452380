#include "tests/simulation/sim_worker.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job_progress.h"
#include "wire/layout_codec.h"

namespace torchps::simulation {
namespace {

// Shorter than the worker's, so that more happens in less time.
constexpr absl::Duration kPromptTimeout = absl::Seconds(1);
constexpr absl::Duration kParkTimeout = absl::Seconds(6);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
constexpr absl::Duration kLastBackoff = absl::Milliseconds(500);
// As in client/fan_out_call.cc.
constexpr int kMaxGreetings = 3;
constexpr int kRenewalsPerLease = 3;
// As in worker/loop/step_loop.cc.
constexpr int kMostStopsInARow = 3;

bool MayRetry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

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
  // A coordinator whose disk failed before it died knows less than it has told.
  const bool is_forgotten = servers_.front()->has_forgotten() && absl::IsInvalidArgument(why);
  if (!absl::IsAborted(why) && !absl::IsCancelled(why) && !is_forgotten) {
    world_->Violation(process_.name(), ", which did nothing wrong, was refused: ", why.ToString());
  }
  Kill();
}

void SimWorker::StepAside() {
  if (joined_.incarnation() == 0) return;
  for (SimServer* const server : servers_) {
    // There is nothing to renew until it is let in again.
    known_[server->index()].greeted = false;
    LeaveRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_server_life(known_[server->index()].life);
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
  Exit(absl::CancelledError("it leaves"));
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
    request.set_server_life(known.life);
    network_->Call<RenewReply>(
        &process_, server->process(), kPromptTimeout,
        {[server, request](const SimServer::Arrival& arrival) { server->Renew(arrival, request); }},
        [](const absl::StatusOr<RenewReply>&) {});
  }
}

SimWorker::RoundPointer SimWorker::Begin(Round begun) {
  const auto round = std::make_shared<Round>(std::move(begun));
  round->left = static_cast<int>(servers_.size());
  round->greetings.assign(servers_.size(), 0);
  round->backoff.assign(servers_.size(), kFirstBackoff);
  for (size_t i = 0; i < servers_.size(); ++i) Try(round, static_cast<int>(i));
  return round;
}

void SimWorker::Try(const RoundPointer& round, int server) {
  if (round->dropped) return;
  round->attempt(server, [this, round, server](const absl::Status& status) {
    Conclude(round, server, status);
  });
}

void SimWorker::Conclude(const RoundPointer& round, int server, const absl::Status& status) {
  if (round->dropped) return;
  if (status.ok() || (absl::IsAborted(status) && round->forgotten == Forgotten::kDone)) {
    if (--round->left == 0) round->then();
    return;
  }
  if (MayRetry(status)) {
    const absl::Duration delay = round->backoff[server];
    round->backoff[server] = std::min(delay * 2, kLastBackoff);
    process_.After(delay, [this, round, server] { Try(round, server); });
    return;
  }
  if (absl::IsAborted(status) && round->forgotten == Forgotten::kGreetAgain &&
      round->greetings[server] < kMaxGreetings) {
    ++round->greetings[server];
    const auto greet = std::make_shared<Then>();
    *greet = [this, round, server, greet_again = std::weak_ptr<Then>(greet)] {
      const std::shared_ptr<Then> again = greet_again.lock();
      Greet(server, round, [this, round, server, again](const absl::Status& greeted) {
        if (greeted.ok()) {
          Try(round, server);
        } else if (MayRetry(greeted)) {
          process_.After(kFirstBackoff, [again] { (*again)(); });
        } else {
          Exit(greeted);
        }
      });
    };
    (*greet)();
    return;
  }
  Exit(status);
}

void SimWorker::WhenDone(const TransferPointer& transfer, Then then) {
  if (transfer->done) {
    then();
  } else {
    transfer->waiting = std::move(then);
  }
}

void SimWorker::Done(const TransferPointer& transfer) {
  transfer->done = true;
  if (const Then then = std::exchange(transfer->waiting, nullptr)) then();
}

void SimWorker::Greet(int server, const RoundPointer& round, Ended ended) {
  HelloRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_job() = joined_.job();
  *request.mutable_layout() = EncodeLayout(scenario_->layout);
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_server_index(server);
  request.set_server_count(static_cast<int>(servers_.size()));
  request.set_job_id(joined_.job_id());
  request.set_resumed_checkpoint(joined_.resumed_checkpoint());
  SimServer* const to = servers_[server];
  network_->Call<HelloReply>(
      &process_, to->process(), kPromptTimeout,
      {[to, request](const SimServer::Arrival& arrival) { to->Hello(arrival, request); }},
      [this, server, round, ended = std::move(ended)](const absl::StatusOr<HelloReply>& reply) {
        if (round != nullptr && round->dropped) return;
        if (reply.ok()) TakeHello(server, *reply);
        if (process_.alive()) ended(reply.status());
      });
}

void SimWorker::TakeHello(int server, const HelloReply& reply) {
  Server& known = known_[server];
  const bool is_new_life = known.life != reply.server_life();
  if (known.expects_model && !reply.initialized()) {
    Exit(absl::FailedPreconditionError("the server has lost the model"));
    return;
  }
  if (is_new_life && known.life != 0 && reply.has_restored()) TakeRestored(server, reply);
  known.life = reply.server_life();
  known.start_clock = std::max(reply.floor(), reply.last_step());
  known.greeted = true;
}

void SimWorker::TakeRestored(int server, const HelloReply& reply) {
  const std::vector<BlockId>& owned = scenario_->map.owned_by(server);
  const SimServer* const it = servers_[server];
  for (size_t i = 0; i < owned.size(); ++i) {
    std::set<Step>& acknowledged = acknowledged_[owned[i]];
    const Step last = reply.restored().block_step(static_cast<int>(i));
    kept_[owned[i]] = last;
    // What the server says must be so, unless it has died again since.
    for (const Step step : acknowledged) {
      if (!it->process()->alive() || it->server_life() != reply.server_life()) break;
      const BlockModel::Name name = {joined_.slot(), joined_.incarnation(), step};
      if (it->model().Has(i, name) != (step <= last)) {
        world_->Violation(it->process()->name(), " says that of slot ", joined_.slot(),
                          "'s incarnation ", joined_.incarnation(), " it has steps up to ", last,
                          " in block ", owned[i], ", and of step ", step, " that is not so");
      }
    }
    const auto lost = acknowledged.upper_bound(last);
    rolled_back_blocks_ += static_cast<uint64_t>(std::distance(lost, acknowledged.end()));
    acknowledged.erase(lost, acknowledged.end());
  }
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
  // In SYNC the values come before the lease.
  if (scenario_->synchronous() && entered_ && !pulled_) {
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
        // A server that came back was greeted for it.
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
    request.set_server_life(known_[server].life);
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

void SimWorker::NextStep() {
  if (position_ >= lease_.end()) {
    FinishPush([this] {
      finished_lease_ = lease_.id();
      pulled_ = false;
      NextWork();
    });
    return;
  }
  const Then compute = [this] {
    pulled_ = false;
    process_.After(step_time_ / 2, [this] {
      AskIfTooLate([this](bool is_too_late) {
        if (!is_too_late) {
          FinishPush([this] { BeginTransfers(); });
          return;
        }
        world_->Trace(process_.name(), " begins its step anew");
        ++stops_in_a_row_;
        NextStep();
      });
    });
  };
  if (pulled_) {
    compute();
  } else {
    PullValues(compute);
  }
}

void SimWorker::AskIfTooLate(std::function<void(bool is_too_late)> then) {
  const ConsistencySpec& consistency = scenario_->job.consistency();
  if (!consistency.stop_stale() || stops_in_a_row_ == kMostStopsInARow) {
    then(false);
    return;
  }
  struct Asked {
    size_t answers = 0;
    size_t too_late = 0;
  };
  const auto asked = std::make_shared<Asked>();
  for (SimServer* const server : servers_) {
    Version based_on = 0;
    for (const BlockId id : scenario_->map.owned_by(server->index())) {
      based_on = std::max(based_on, versions_[id]);
    }
    RenewRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_server_life(known_[server->index()].life);
    network_->Call<RenewReply>(
        &process_, server->process(), kPromptTimeout,
        {[server, request](const SimServer::Arrival& arrival) { server->Renew(arrival, request); }},
        [this, asked, based_on, step = clock_ + 1, then](const absl::StatusOr<RenewReply>& reply) {
          const int64_t max_lag = scenario_->job.consistency().lag().max_lag();
          const bool is_too_late =
              reply.ok() && (scenario_->synchronous() ? reply->floor() >= step
                                                      : reply->max_version() - based_on > max_lag);
          if (is_too_late) ++asked->too_late;
          if (++asked->answers == servers_.size()) then(asked->too_late == servers_.size());
        });
  }
}

void SimWorker::FreezeBeforePush(absl::Duration duration, Then then) {
  freeze_ = duration;
  when_frozen_ = std::move(then);
}

void SimWorker::BeginTransfers() {
  if (const absl::Duration freeze = std::exchange(freeze_, absl::ZeroDuration());
      freeze > absl::ZeroDuration()) {
    world_->Trace(process_.name(), " freezes before it pushes step ", clock_ + 1);
    process_.Freeze(freeze);
    process_.After(absl::ZeroDuration(), [this] { BeginTransfers(); });
    when_frozen_();
    return;
  }
  stops_in_a_row_ = 0;
  const double within = static_cast<double>(position_ - lease_.begin()) /
                        static_cast<double>(lease_.end() - lease_.begin());
  push_ =
      BeginPush(clock_ + 1, ProgressOf(lease_.progress_begin() +
                                       within * (lease_.progress_end() - lease_.progress_begin())));
  pushed_.set_begin(position_ - lease_.begin());
  pushed_.set_end(std::min(position_ + StepSamples(), lease_.end()) - lease_.begin());
  if (scenario_->job.consistency().prefetch()) {
    ahead_ = BeginPull(clock_ + 1, /*ahead=*/true, /*read_only=*/false);
  }
  process_.After(step_time_ / 2, [this] {
    position_ += StepSamples();
    NextStep();
  });
}

int64_t SimWorker::StepSamples() const {
  return int64_t{lease_.batch_size()} * scenario_->job.training().accumulate();
}

void SimWorker::FinishPush(Then then) {
  if (push_ == nullptr) {
    then();
    return;
  }
  WhenDone(push_, [this, then = std::move(then)] {
    if (push_->refused && !push_->applied) lost_.push_back(pushed_);
    push_ = nullptr;
    ++clock_;
    then();
  });
}

void SimWorker::PullValues(Then then) {
  if (ahead_ != nullptr) {
    const TransferPointer ahead = std::exchange(ahead_, nullptr);
    WhenDone(ahead, std::move(then));
    return;
  }
  FinishPush([this, then = std::move(then)] {
    const TransferPointer pull = BeginPull(clock_, /*ahead=*/false, /*read_only=*/false);
    // Not the pull itself, which holds this: of one that never ends nobody would let go.
    WhenDone(pull, [this, ended = std::weak_ptr<Transfer>(pull), then] {
      if (scenario_->synchronous()) clock_ = std::max(clock_, ended.lock()->floor);
      then();
    });
  });
}

SimWorker::TransferPointer SimWorker::BeginPull(Step clock, bool ahead, bool read_only) {
  const auto transfer = std::make_shared<Transfer>();
  transfer->floor = std::numeric_limits<Step>::max();
  const auto versions = std::make_shared<std::vector<Version>>(versions_.size());
  Round round;
  round.attempt = [this, clock, ahead, read_only, transfer, versions](int server, Ended ended) {
    PullRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_clock(clock);
    request.set_server_life(known_[server].life);
    request.set_ahead(ahead);
    request.set_read_only(read_only);
    if (!read_only) known_[server].expects_model = true;
    SimServer* const to = servers_[server];
    network_->Call<Pulled>(
        &process_, to->process(), kParkTimeout,
        {[to, request](const SimServer::Arrival& arrival) { to->Pull(arrival, request); }},
        [this, server, transfer, versions,
         ended = std::move(ended)](const absl::StatusOr<Pulled>& pulled) {
          if (pulled.ok()) {
            transfer->floor = std::min(transfer->floor, pulled->floor);
            known_[server].expects_model = true;
            for (const PulledBlock& block : pulled->blocks) {
              (*versions)[block.block] = block.version;
            }
          }
          ended(pulled.status());
        });
  };
  round.then = [this, transfer, versions] {
    versions_ = *versions;
    Done(transfer);
  };
  transfer->round = Begin(std::move(round));
  return transfer;
}

SimWorker::TransferPointer SimWorker::BeginPush(Step step, uint32_t progress) {
  const auto transfer = std::make_shared<Transfer>();
  Round round;
  round.attempt = [this, step, progress, transfer, versions = versions_](int server, Ended ended) {
    SimServer* const to = servers_[server];
    const std::vector<BlockId>& owned = scenario_->map.owned_by(server);
    std::vector<Network::Frame> frames;
    for (size_t i = 0; i < owned.size(); ++i) {
      PushHeader header;
      header.slot = joined_.slot();
      header.incarnation = joined_.incarnation();
      header.step = step;
      header.block = owned[i];
      header.progress = progress;
      header.base_version = versions[owned[i]];
      header.server_life = known_[server].life;
      header.weight = step == 0 ? 0 : WeightOf(joined_.slot(), step);
      header.block_count = static_cast<uint32_t>(owned.size());
      header.withheld =
          step > 0 && IsWithheld(joined_.slot(), joined_.incarnation(), step, owned[i]);
      if (step > 0 &&
          IsAbsent(joined_.slot(), joined_.incarnation(), step, owned[i], scenario_->fragments)) {
        header.absent = {{0, scenario_->map.blocks()[owned[i]].length}};
      }
      frames.push_back([to, header, i, count = owned.size()](const SimServer::Arrival& arrival) {
        to->Push(arrival, header, i, count);
      });
    }
    network_->Call<PushReply>(
        &process_, to->process(), kParkTimeout, std::move(frames),
        [this, step, server, transfer, life = known_[server].life,
         ended = std::move(ended)](const absl::StatusOr<PushReply>& reply) {
          if (reply.ok() && step > 0) {
            for (const BlockVerdict& verdict : reply->block()) {
              const Verdict was = verdict.verdict();
              transfer->applied |= was == ACCEPTED || was == SCALED || was == ADMITTED;
              transfer->refused |= was == REJECTED_STALE || was == LATE;
              // The answer of a former life, after the present one has said what it has.
              if (life != known_[server].life && step > kept_[verdict.block()]) {
                ++rolled_back_blocks_;
              } else {
                acknowledged_[verdict.block()].insert(step);
              }
            }
          }
          ended(reply.status());
        });
  };
  round.then = [this, transfer] { Done(transfer); };
  transfer->round = Begin(std::move(round));
  return transfer;
}

}  // namespace torchps::simulation
