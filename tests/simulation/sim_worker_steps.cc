// Implements the part of SimWorker that simulates torchps/worker/loop and torchps/client/: the
// steps, and the calls to all servers in them.

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "tests/simulation/sim_worker.h"
#include "torchps/common/types.h"
#include "torchps/transport/layout_codec.h"

namespace torchps::simulation {
namespace {

// The same as in torchps/client/fan_out_call.cc.
constexpr int kMaxGreetings = 3;
// The same as in torchps/worker/loop/step_loop.cc.
constexpr int kMaxStopsInARow = 3;

}  // namespace

SimWorker::RoundPointer SimWorker::Begin(Round begun) {
  const auto round = std::make_shared<Round>(std::move(begun));
  round->left = static_cast<int>(servers_.size());
  round->pending_hellos.assign(servers_.size(), 0);
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
      round->pending_hellos[server] < kMaxGreetings) {
    ++round->pending_hellos[server];
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

HelloRequest SimWorker::HelloTo(int server) const {
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
  return request;
}

void SimWorker::Greet(int server, const RoundPointer& round, Ended ended) {
  const HelloRequest request = HelloTo(server);
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
  const bool is_new_incarnation = known.life != reply.server_incarnation();
  if (known.expects_model && !reply.initialized()) {
    Exit(absl::FailedPreconditionError("the server has lost the model"));
    return;
  }
  if (is_new_incarnation && known.life != 0 && reply.has_restored()) TakeRestored(server, reply);
  known.life = reply.server_incarnation();
  known.start_clock = std::max(reply.min_clock(), reply.last_step());
  known.greeted = true;
}

void SimWorker::TakeRestored(int server, const HelloReply& reply) {
  const std::vector<BlockId>& owned = scenario_->map.owned_by(server);
  const SimServer* const it = servers_[server];
  for (size_t i = 0; i < owned.size(); ++i) {
    std::set<Step>& acknowledged = acknowledged_[owned[i]];
    const Step last = reply.restored().block_step(static_cast<int>(i));
    kept_[owned[i]] = last;
    // Checks the server's report, unless the server died again since.
    for (const Step step : acknowledged) {
      if (!it->process()->alive() || it->server_incarnation() != reply.server_incarnation()) break;
      const BlockModel::Name name = {joined_.slot(), joined_.incarnation(), step};
      if (it->model().Has(i, name) != (step <= last)) {
        world_->Violation(it->process()->name(), " reports that for slot ", joined_.slot(),
                          "'s incarnation ", joined_.incarnation(), " it contains the steps up to ",
                          last, " in block ", owned[i], ", but for step ", step, " this is wrong");
      }
    }
    const auto lost = acknowledged.upper_bound(last);
    rolled_back_blocks_ += static_cast<uint64_t>(std::distance(lost, acknowledged.end()));
    acknowledged.erase(lost, acknowledged.end());
  }
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
        world_->Trace(process_.name(), " restarts its step");
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
  if (!consistency.stop_stale() || stops_in_a_row_ == kMaxStopsInARow) {
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
    request.set_server_incarnation(known_[server->index()].life);
    network_->Call<RenewReply>(
        &process_, server->process(), kPromptTimeout,
        {[server, request](const SimServer::Arrival& arrival) { server->Renew(arrival, request); }},
        [this, asked, based_on, step = clock_ + 1, then](const absl::StatusOr<RenewReply>& reply) {
          const bool is_too_late =
              reply.ok() &&
              (scenario_->synchronous() ? reply->min_clock() >= step
                                        : reply->max_version() - based_on > LargestLag());
          if (is_too_late) ++asked->too_late;
          if (++asked->answers == servers_.size()) then(asked->too_late == servers_.size());
        });
  }
}

int64_t SimWorker::LargestLag() const {
  const ConsistencySpec& consistency = scenario_->job.consistency();
  return scenario_->whole_batches() ? consistency.staleness_bound() : consistency.lag().max_lag();
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
  pushed_.set_begin(position_ - lease_.begin());
  pushed_.set_end(std::min(position_ + StepSamples(), lease_.end()) - lease_.begin());
  const double within = static_cast<double>(position_ - lease_.begin()) /
                        static_cast<double>(lease_.end() - lease_.begin());
  push_ = BeginPush(clock_ + 1,
                    GetProgress(lease_.progress_begin() +
                                within * (lease_.progress_end() - lease_.progress_begin())));
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

void SimWorker::SetSamples(PushHeader* header) const {
  if (!scenario_->whole_batches()) {
    header->weight = GetWeight(joined_.slot(), header->step);
    return;
  }
  header->weight = static_cast<uint32_t>(pushed_.end() - pushed_.begin());
  if (lease_.reissued()) return;
  const TrainingSpec& training = scenario_->job.training();
  if (lease_.share() > 0) {
    header->share = static_cast<uint32_t>(lease_.share());
  } else if (lease_.progress_end() >= 1 && training.global_batch()) {
    // The job's last batch.
    header->share = static_cast<uint32_t>(training.batch_size() * training.accumulate() + 1);
  } else if (header->weight < StepSamples()) {
    // The epoch ended before the slot's share was full.
    header->share = static_cast<uint32_t>(StepSamples());
  }
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
    // Captures a weak pointer, because the pull owns this function and would otherwise own itself.
    WhenDone(pull, [this, ended = std::weak_ptr<Transfer>(pull), then] {
      if (scenario_->synchronous()) clock_ = std::max(clock_, ended.lock()->min_clock);
      then();
    });
  });
}

SimWorker::TransferPointer SimWorker::BeginPull(Step clock, bool ahead, bool read_only) {
  const auto transfer = std::make_shared<Transfer>();
  transfer->min_clock = std::numeric_limits<Step>::max();
  const auto versions = std::make_shared<std::vector<Version>>(versions_.size());
  Round round;
  round.attempt = [this, clock, ahead, read_only, transfer, versions](int server, Ended ended) {
    PullRequest request;
    request.set_slot(joined_.slot());
    request.set_incarnation(joined_.incarnation());
    request.set_clock(clock);
    request.set_server_incarnation(known_[server].life);
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
            transfer->min_clock = std::min(transfer->min_clock, pulled->min_clock);
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
      header.server_incarnation = known_[server].life;
      if (step > 0) SetSamples(&header);
      header.block_count = static_cast<uint32_t>(owned.size());
      header.withheld =
          step > 0 && IsWithheld(joined_.slot(), joined_.incarnation(), step, owned[i]);
      if (step > 0 && IsAbsent(joined_.slot(), joined_.incarnation(), step, owned[i])) {
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
              transfer->applied |= was == ACCEPTED || was == SCALED;
              transfer->refused |= was == REJECTED_STALE || was == LATE;
              // The server gave this answer before it restarted. The restarted server has already
              // reported that it does not contain the step.
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
