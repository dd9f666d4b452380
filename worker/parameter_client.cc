#include "worker/parameter_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "grpcpp/alarm.h"
#include "proto/layout_codec.h"
#include "worker/client_pull.h"
#include "worker/client_push.h"

namespace torchps {
namespace {

// Of calls that a server answers at once.
constexpr absl::Duration kPromptTimeout = absl::Seconds(5);
// Of calls that a server may park: then the same call is made again.
constexpr absl::Duration kParkTimeout = absl::Seconds(30);
// A transfer that is slower than this in one direction starts again from its beginning.
constexpr double kSlowestBytesPerSecond = 4 << 20;
// Greetings of one server within one call, after which its ABORTED counts as final.
constexpr int kMaxGreetings = 3;
// A push that has begun when the user stops gets so long to end cleanly.
constexpr absl::Duration kPushGrace = absl::Seconds(2);
constexpr absl::Duration kLeavePatience = absl::Seconds(3);

absl::Status WithName(const ServerEndpoint& server, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(server.name(), ": ", status.message()));
}

// Memory that gRPC may refer to until the last copy of reference() is gone.
class BorrowedMemory {
 public:
  BorrowedMemory() : reference_(&released_, [this](const void*) { released_.store(true); }) {}

  const std::shared_ptr<const void>& reference() const { return reference_; }

  // Blocks until nobody refers to the memory. gRPC drops its references while somebody polls, which
  // is done here. REQUIRES: no call is in flight on `queue`.
  void AwaitRelease(grpc::CompletionQueue* queue) {
    reference_.reset();
    while (!released_.load()) {
      void* tag;
      bool ok;
      queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + std::chrono::milliseconds(10));
    }
  }

 private:
  std::atomic<bool> released_{false};
  std::shared_ptr<const void> reference_;
};

}  // namespace

ParameterClient::Server::Server(ServerEndpoint endpoint, ServerPatience::Options patience)
    : endpoint(std::move(endpoint)),
      stub(ParameterService::NewStub(this->endpoint.channel)),
      generic_stub(this->endpoint.channel),
      patience(this->endpoint, std::move(patience)) {}

// One server's part in CallAll.
struct ParameterClient::Attempt {
  Server* server = nullptr;
  std::unique_ptr<ClientCall> call;  // in flight
  bool greeting = false;             // what is in flight, or next, is a Hello
  bool done = false;
  int greetings = 0;
  absl::Duration next_try = absl::ZeroDuration();
  absl::Duration give_up = absl::InfiniteDuration();
};

absl::StatusOr<std::unique_ptr<ParameterClient>> ParameterClient::Create(Options options) {
  if (options.servers.empty()) return absl::InvalidArgumentError("no server is given");
  if (static_cast<int>(options.servers.size()) != options.block_map.servers()) {
    return absl::InvalidArgumentError(absl::StrCat("the block map is for ",
                                                   options.block_map.servers(), " servers, but ",
                                                   options.servers.size(), " are given"));
  }
  return std::unique_ptr<ParameterClient>(new ParameterClient(std::move(options)));
}

ParameterClient::ParameterClient(Options options)
    : options_(std::move(options)),
      versions_(options_.block_map.blocks().size()),
      push_replies_(options_.servers.size()),
      renewals_(options_.servers.size()) {
  hello_request_.set_protocol_version(kProtocolVersion);
  *hello_request_.mutable_job() = options_.job;
  *hello_request_.mutable_layout() = EncodeLayout(options_.layout);
  hello_request_.set_slot(options_.slot);
  hello_request_.set_incarnation(options_.incarnation);
  hello_request_.set_server_count(static_cast<int>(options_.servers.size()));
  hello_request_.set_job_id(options_.job_id);
  ServerPatience::Options patience;
  patience.patience = options_.patience;
  patience.say = options_.say;
  patience.clock = options_.clock;
  patience.seed = options_.incarnation;
  for (const ServerEndpoint& endpoint : options_.servers) {
    servers_.push_back(std::make_unique<Server>(endpoint, patience));
  }
}

ParameterClient::~ParameterClient() {
  queue_.Shutdown();
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::StatusOr<Step> ParameterClient::Hello() {
  Rules rules;
  rules.forgotten = Rules::Forgotten::kFail;
  const absl::Status status = CallAll(
      AllServers(), [this](Server& server) { return MakeHello(server); }, rules);
  if (!status.ok()) return status;
  Step start = 0;
  for (const auto& server : servers_) {
    if (absl::Status taken = TakeHello(*server); !taken.ok()) return taken;
    start = std::max({start, server->hello_reply.floor(), server->hello_reply.last_step()});
  }
  return start;
}

std::unique_ptr<ClientCall> ParameterClient::MakeHello(Server& server) {
  HelloRequest request = hello_request_;
  request.set_server_index(server.endpoint.index);
  return std::make_unique<ClientUnaryCall<HelloReply>>(
      kPromptTimeout,
      [&server, request](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
        return server.stub->PrepareAsyncHello(context, request, queue);
      },
      &server.hello_reply);
}

absl::Status ParameterClient::TakeHello(Server& server) {
  const HelloReply& reply = server.hello_reply;
  const bool is_new_life = server.life != reply.server_life();
  if (is_new_life && server.has_model && !reply.initialized()) {
    return absl::FailedPreconditionError(absl::StrCat(
        server.endpoint.name(), " has been restarted and has lost the model; start the job again"));
  }
  server.life = reply.server_life();
  server.has_model = reply.initialized();
  MutexLock lock(&mutex_);
  RenewRequest& renewal = renewals_[server.endpoint.index];
  renewal.set_slot(options_.slot);
  renewal.set_incarnation(options_.incarnation);
  renewal.set_server_life(server.life);
  return absl::OkStatus();
}

absl::Status ParameterClient::Initialize(absl::Span<const float> values) {
  TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
            "initial values of another length than the layout's");
  // An OK reply says all there is to say: every block has its values.
  return PushFrom(/*step=*/0, /*weight=*/0, [values](const BlockRange& block) {
    return values.subspan(block.offset, block.length);
  });
}

absl::StatusOr<PushResult> ParameterClient::Push(Step step, int64_t weight,
                                                 absl::Span<const float> gradients,
                                                 absl::Span<const float> averaged) {
  const int64_t trained_size = options_.layout.trained_size();
  TPS_CHECK(static_cast<int64_t>(gradients.size()) == trained_size &&
                static_cast<int64_t>(averaged.size()) == options_.layout.averaged_size(),
            "a push of another length than the layout's");
  const absl::Status status =
      PushFrom(step, weight, [gradients, averaged, trained_size](const BlockRange& block) {
        return block.averaged ? averaged.subspan(block.offset - trained_size, block.length)
                              : gradients.subspan(block.offset, block.length);
      });
  if (!status.ok()) return status;
  PushResult result;
  for (const Server* server : Owners()) {
    const PushReply& reply = push_replies_[server->endpoint.index];
    if (absl::Status counted = CountVerdicts(*server, reply, result); !counted.ok()) {
      return counted;
    }
  }
  return result;
}

absl::Status ParameterClient::PushFrom(
    Step step, int64_t weight,
    const std::function<absl::Span<const float>(const BlockRange&)>& payload_of) {
  BorrowedMemory memory;
  const auto make = [&](Server& server) {
    const std::vector<BlockId>& owned = options_.block_map.owned_by(server.endpoint.index);
    std::vector<ClientPush::Frame> frames;
    frames.reserve(owned.size());
    for (const BlockId id : owned) {
      PushHeader header;
      header.slot = options_.slot;
      header.incarnation = options_.incarnation;
      header.step = step;
      header.block = id;
      header.base_version = versions_[id];
      header.server_life = server.life;
      header.weight = static_cast<uint32_t>(weight);
      header.block_count = static_cast<uint32_t>(owned.size());
      frames.push_back({header, payload_of(options_.block_map.blocks()[id])});
    }
    PushReply& reply = push_replies_[server.endpoint.index];
    reply.Clear();
    return std::make_unique<ClientPush>(&server.generic_stub, std::move(frames), memory.reference(),
                                        TransferTimeout(server), &reply);
  };
  Rules rules;
  rules.grace_after_stop = kPushGrace;
  rules.may_park = true;
  const absl::Status status = CallAll(Owners(), make, rules);
  memory.AwaitRelease(&queue_);
  return status;
}

absl::Status ParameterClient::CountVerdicts(const Server& server, const PushReply& reply,
                                            PushResult& result) const {
  const size_t expected = options_.block_map.owned_by(server.endpoint.index).size();
  if (static_cast<size_t>(reply.block_size()) != expected) {
    return WithName(server.endpoint, absl::InternalError(absl::StrCat(
                                         "a push was answered with ", reply.block_size(),
                                         " verdicts; expected ", expected)));
  }
  for (const BlockVerdict& verdict : reply.block()) {
    switch (verdict.verdict()) {
      case ACCEPTED:
        ++result.accepted;
        break;
      case SCALED:
        ++result.scaled;
        break;
      case ADMITTED:
        ++result.admitted;
        break;
      case REJECTED_STALE:
        ++result.rejected;
        break;
      case LATE:
        ++result.late;
        break;
      default:
        return WithName(server.endpoint, absl::InternalError(absl::StrCat(
                                             "block ", verdict.block(), " has no known verdict")));
    }
    if (verdict.duplicate()) ++result.duplicates;
    result.max_lag = std::max(result.max_lag, verdict.lag());
  }
  return absl::OkStatus();
}

absl::StatusOr<PullResult> ParameterClient::Pull(Step clock, bool read_only,
                                                 absl::Span<float> values) {
  TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
            "a pull into a vector of another length than the layout's");
  PullResult result;
  result.floor = std::numeric_limits<Step>::max();
  const auto make = [&](Server& server) {
    PullRequest request;
    request.set_slot(options_.slot);
    request.set_incarnation(options_.incarnation);
    request.set_clock(clock);
    request.set_server_life(server.life);
    request.set_read_only(read_only);
    const size_t expected = options_.block_map.owned_by(server.endpoint.index).size();
    // Blocks that this try has brought.
    auto brought = std::make_shared<absl::flat_hash_set<BlockId>>();
    return std::make_unique<ClientPull>(
        &server.generic_stub, request, expected, TransferTimeout(server),
        [this, &server, &result, values, brought](const PullHeader& header,
                                                  const FramePayload& payload) -> absl::Status {
          const std::vector<BlockRange>& blocks = options_.block_map.blocks();
          if (header.block >= blocks.size() ||
              blocks[header.block].server != server.endpoint.index ||
              !brought->insert(header.block).second) {
            return absl::InvalidArgumentError(absl::StrCat(
                "sent block ", header.block, ", which it does not own or has already sent"));
          }
          const BlockRange& block = blocks[header.block];
          if (payload.floats() != block.length) {
            return absl::InvalidArgumentError(absl::StrCat("sent block ", header.block, " with ",
                                                           payload.floats(), " elements; expected ",
                                                           block.length));
          }
          payload.CopyTo(values.data() + block.offset);
          versions_[block.id] = header.version;
          result.floor = std::min(result.floor, header.floor);
          const auto parked_us = static_cast<int64_t>(header.parked_us);
          result.parked = std::max(result.parked, absl::Microseconds(parked_us));
          return absl::OkStatus();
        });
  };
  Rules rules;
  rules.may_park = true;
  // Whoever only reads was never greeted, and need not be.
  if (read_only) rules.forgotten = Rules::Forgotten::kFail;
  const std::vector<Server*> owners = Owners();
  if (absl::Status status = CallAll(owners, make, rules); !status.ok()) return status;
  for (Server* server : owners) server->has_model = true;
  return result;
}

absl::Status ParameterClient::Leave() {
  std::vector<Server*> greeted;
  for (const auto& server : servers_) {
    if (server->life != 0) greeted.push_back(server.get());
  }
  {
    MutexLock lock(&mutex_);
    for (RenewRequest& renewal : renewals_) renewal.Clear();
  }
  std::vector<LeaveReply> replies(servers_.size());
  Rules rules;
  rules.grace_after_stop = kLeavePatience;
  rules.patience = kLeavePatience;
  // It has let the slot go already.
  rules.forgotten = Rules::Forgotten::kDone;
  return CallAll(
      greeted,
      [&](Server& server) {
        LeaveRequest request;
        request.set_slot(options_.slot);
        request.set_incarnation(options_.incarnation);
        request.set_server_life(server.life);
        return std::make_unique<ClientUnaryCall<LeaveReply>>(
            kLeavePatience,
            [&server, request](grpc::ClientContext* context, grpc::CompletionQueue* queue) {
              return server.stub->PrepareAsyncLeave(context, request, queue);
            },
            &replies[server.endpoint.index]);
      },
      rules);
}

void ParameterClient::Renew(absl::Duration timeout) {
  std::vector<RenewRequest> renewals;
  {
    MutexLock lock(&mutex_);
    renewals = renewals_;
  }
  for (size_t i = 0; i < renewals.size(); ++i) {
    if (renewals[i].server_life() == 0) continue;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    RenewReply reply;
    servers_[i]->stub->Renew(&context, renewals[i], &reply);
  }
}

std::vector<ParameterClient::Server*> ParameterClient::AllServers() {
  std::vector<Server*> all;
  for (const auto& server : servers_) all.push_back(server.get());
  return all;
}

std::vector<ParameterClient::Server*> ParameterClient::Owners() {
  std::vector<Server*> owners;
  for (const auto& server : servers_) {
    if (!options_.block_map.owned_by(server->endpoint.index).empty())
      owners.push_back(server.get());
  }
  return owners;
}

absl::Duration ParameterClient::TransferTimeout(const Server& server) const {
  double bytes = 0;
  for (const BlockId id : options_.block_map.owned_by(server.endpoint.index)) {
    bytes += static_cast<double>(options_.block_map.blocks()[id].length * sizeof(float));
  }
  return kParkTimeout + absl::Seconds(bytes / kSlowestBytesPerSecond);
}

absl::Status ParameterClient::CallAll(const std::vector<Server*>& servers, const CallFactory& make,
                                      Rules rules) {
  const Clock& clock = *options_.clock;
  std::vector<Attempt> attempts(servers.size());
  for (size_t i = 0; i < servers.size(); ++i) {
    attempts[i].server = servers[i];
    attempts[i].give_up = clock.Now() + rules.patience;
  }

  // A stop comes from another thread; an alarm turns it into an event without a tag.
  grpc::Alarm stop_alarm;
  const StopLatch::Registration on_stop(options_.stop, [this, &stop_alarm] {
    stop_alarm.Set(&queue_, std::chrono::system_clock::now(), nullptr);
  });
  absl::Duration cancel_at = absl::InfiniteDuration();

  absl::Status failure;
  const auto fail = [&](const absl::Status& status) {
    if (!failure.ok()) return;
    failure = status;
    for (Attempt& attempt : attempts) {
      if (attempt.call != nullptr) attempt.call->Cancel();
    }
  };

  while (true) {
    bool in_flight = false;
    bool all_done = true;
    absl::Duration wake_at = failure.ok() ? cancel_at : absl::InfiniteDuration();
    for (Attempt& attempt : attempts) {
      if (attempt.done) continue;
      all_done = false;
      if (attempt.call == nullptr && failure.ok()) {
        if (attempt.next_try <= clock.Now()) {
          Begin(attempt, make);
        } else {
          wake_at = std::min(wake_at, attempt.next_try);
        }
      }
      in_flight |= attempt.call != nullptr;
    }
    if (all_done) return absl::OkStatus();
    if (!failure.ok() && !in_flight) return failure;

    void* tag = nullptr;
    bool ok = false;
    const absl::Time deadline = absl::Now() + (wake_at - clock.Now());
    switch (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(deadline))) {
      case grpc::CompletionQueue::SHUTDOWN:
        TPS_CHECK(false, "the queue lives as long as the client");
        break;
      case grpc::CompletionQueue::TIMEOUT:
        break;
      case grpc::CompletionQueue::GOT_EVENT:
        if (tag != nullptr) {
          Attempt& attempt = *static_cast<Attempt*>(tag);
          if (!attempt.call->Proceed(ok)) break;
          if (absl::Status status = Conclude(attempt, rules); !status.ok()) fail(status);
        } else if (options_.stop->stopped() && cancel_at == absl::InfiniteDuration()) {
          cancel_at = clock.Now() + rules.grace_after_stop;
        }
        break;
    }
    if (clock.Now() >= cancel_at) fail(absl::CancelledError(options_.stop->reason()));
  }
}

void ParameterClient::Begin(Attempt& attempt, const CallFactory& make) {
  attempt.call = attempt.greeting ? MakeHello(*attempt.server) : make(*attempt.server);
  attempt.call->Start(&queue_, &attempt);
}

absl::Status ParameterClient::Conclude(Attempt& attempt, const Rules& rules) {
  Server& server = *attempt.server;
  const absl::Status status = attempt.call->status();
  attempt.call.reset();
  attempt.next_try = absl::ZeroDuration();
  if (status.ok()) {
    server.patience.Answered();
    if (!attempt.greeting) {
      attempt.done = true;
      return absl::OkStatus();
    }
    attempt.greeting = false;
    return TakeHello(server);
  }
  if (absl::IsUnimplemented(status)) return NoTorchpsServer(server.endpoint);
  if (absl::IsAborted(status) && rules.forgotten == Rules::Forgotten::kDone) {
    attempt.done = true;
    return absl::OkStatus();
  }
  if (absl::IsAborted(status) && rules.forgotten == Rules::Forgotten::kGreetAgain &&
      !attempt.greeting && attempt.greetings < kMaxGreetings) {
    ++attempt.greetings;
    attempt.greeting = true;
    return absl::OkStatus();
  }
  if (!ServerPatience::MayRetry(status)) return WithName(server.endpoint, status);
  if (absl::IsDeadlineExceeded(status) && rules.may_park && !attempt.greeting &&
      server.endpoint.channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    server.patience.Answered();
    return absl::OkStatus();
  }
  const absl::StatusOr<absl::Duration> delay = server.patience.Failed(status);
  if (!delay.ok()) return delay.status();
  attempt.next_try = options_.clock->Now() + *delay;
  if (attempt.next_try >= attempt.give_up) return WithName(server.endpoint, status);
  return absl::OkStatus();
}

}  // namespace torchps
