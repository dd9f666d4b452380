#include "tests/fault/nemesis/nemesis_pusher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Ends a call to a server that is frozen or down; Persist() then repeats the call.
constexpr absl::Duration kCallTimeout = absl::Seconds(2);
constexpr absl::Duration kRetry = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

NemesisPusher::NemesisPusher(NemesisJob job, const std::vector<RemoteServer*>& servers,
                             JoinReply joined, NemesisDevice* device, NemesisJournal* journal,
                             StopLatch* stop)
    : job_(std::move(job)),
      joined_(std::move(joined)),
      device_(device),
      journal_(*journal),
      stop_(*stop) {
  for (RemoteServer* const server : servers) {
    peers_.push_back({server, ParameterService::NewStub(server->endpoint().channel), 0});
  }
  versions_.resize(NemesisJob::kBlocks);
}

absl::Status NemesisPusher::Greet(int server) {
  HelloRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_job() = joined_.job();
  *request.mutable_layout() = EncodeLayout(job_.layout);
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_server_index(server);
  request.set_server_count(NemesisJob::kServers);
  request.set_job_id(joined_.job_id());
  request.set_resumed_checkpoint(joined_.resumed_checkpoint());
  request.set_continues(peers_[server].life != 0);
  for (const Peer& peer : peers_) request.add_server_address(peer.server->endpoint().address);
  return Persist([&](grpc::ClientContext* context) {
    HelloReply reply;
    const absl::Status status =
        FromGrpcStatus(peers_[server].stub->Hello(context, request, &reply));
    if (!status.ok()) return status;
    if (reply.has_restoring()) {
      return absl::UnavailableError(absl::StrCat("server ", server, " ", reply.restoring().what()));
    }
    const uint64_t before = peers_[server].life;
    if (before != 0 && before != reply.server_incarnation() && !reply.has_restored()) {
      return absl::DataLossError(absl::StrCat("server ", server, " restarted without its state"));
    }
    peers_[server].life = reply.server_incarnation();
    step_ = std::max({step_, reply.last_step(), reply.min_clock()});
    journal_.Greeted(server, reply);
    peers_[server].server->lease().Begin(reply.server_incarnation());
    return absl::OkStatus();
  });
}

absl::Status NemesisPusher::GreetAll() {
  for (int server = 0; server < NemesisJob::kServers; ++server) {
    if (absl::Status status = Greet(server); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status NemesisPusher::Initialize() {
  const std::vector<float> zeros(NemesisJob::kBlockElements);
  const Gradient values = [&zeros](BlockId) { return absl::MakeConstSpan(zeros); };
  for (int server = 0; server < NemesisJob::kServers; ++server) {
    const auto pushed = Push(server, /*step=*/0, values);
    if (!pushed.ok()) return pushed.status();
  }
  return absl::OkStatus();
}

absl::Status NemesisPusher::Train() {
  while (!stop_.stopped()) {
    if (absl::Status status = PullAll(); !status.ok()) {
      return stop_.stopped() ? absl::OkStatus() : status;
    }
    const Step step = ++step_;
    const std::vector<float> on_host = NemesisJob::Gradient(joined_.slot(), step);
    if (device_ != nullptr) device_->BeginPush(step);
    const Gradient gradient = [&](BlockId block) -> absl::StatusOr<absl::Span<const float>> {
      if (device_ != nullptr) return device_->Block(block);
      return on_host;
    };
    journal_.Begin(step);
    for (int server = 0; server < NemesisJob::kServers; ++server) {
      const auto refused = Push(server, step, gradient);
      if (!refused.ok()) return refused.status();
      journal_.Acknowledged(server, step, *refused);
    }
    journal_.Done(step, clock_.Now());
  }
  return absl::OkStatus();
}

absl::Status NemesisPusher::Persist(const std::function<absl::Status(grpc::ClientContext*)>& call) {
  const absl::Time give_up = absl::Now() + kPatience;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    const absl::Status status = call(&context);
    if (!RetryDeadline::MayRetry(status) || absl::Now() > give_up) return status;
    absl::SleepFor(kRetry);
  }
}

absl::Status NemesisPusher::PersistAt(
    int server, const std::function<absl::Status(grpc::ClientContext*)>& call) {
  while (true) {
    const absl::Status status = Persist(call);
    if (!absl::IsAborted(status)) return status;
    if (absl::Status greeted = Greet(server); !greeted.ok()) return greeted;
  }
}

absl::Status NemesisPusher::PullAll() {
  const absl::Time give_up = absl::Now() + kPatience;
  std::vector<int> missing(NemesisJob::kServers);
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::vector<std::unique_ptr<PullCall>> calls;
    for (const int server : missing) calls.push_back(BeginPull(server));
    missing.clear();
    absl::Status result;
    for (const auto& call : calls) {
      absl::Status status = FinishPull(*call);
      if (status.ok()) continue;
      missing.push_back(call->server);
      if (absl::IsAborted(status)) status = Greet(call->server);
      if (!status.ok() && !RetryDeadline::MayRetry(status)) result.Update(status);
      if (!status.ok() && absl::Now() > give_up) result.Update(status);
    }
    if (!result.ok() || missing.empty()) return result;
    if (stop_.stopped()) return absl::CancelledError("stopped");
    absl::SleepFor(kRetry);
  }
}

std::unique_ptr<NemesisPusher::PullCall> NemesisPusher::BeginPull(int server) {
  auto call = std::make_unique<PullCall>();
  call->server = server;
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  PullRequest request;
  request.set_slot(joined_.slot());
  request.set_incarnation(joined_.incarnation());
  request.set_clock(step_);
  request.set_server_incarnation(peers_[server].life);
  call->reader = peers_[server].stub->Pull(&call->context, request);
  return call;
}

absl::Status NemesisPusher::FinishPull(PullCall& call) {
  for (PullFrame frame; call.reader->Read(&frame);) {
    versions_.at(frame.block()) = frame.version();
  }
  return FromGrpcStatus(call.reader->Finish());
}

absl::StatusOr<std::vector<BlockId>> NemesisPusher::Push(int server, Step step,
                                                         const Gradient& gradient) {
  const std::vector<BlockId>& owned = job_.map.owned_by(server);
  const int64_t largest_lag = LargestLag(job_.spec.consistency());
  std::vector<BlockId> refused;
  const absl::Status pushed = PersistAt(server, [&](grpc::ClientContext* context) {
    refused.clear();
    PushReply reply;
    const auto writer = peers_[server].stub->Push(context, &reply);
    for (const BlockId block : owned) {
      const auto elements = gradient(block);
      if (!elements.ok()) {
        context->TryCancel();
        writer->Finish();
        return elements.status();
      }
      PushFrame frame;
      frame.set_slot(joined_.slot());
      frame.set_incarnation(joined_.incarnation());
      frame.set_step(step);
      frame.set_block(block);
      frame.set_base_version(versions_[block]);
      frame.set_server_incarnation(peers_[server].life);
      frame.set_weight(NemesisJob::kPushWeight);
      frame.set_block_count(static_cast<uint32_t>(owned.size()));
      frame.set_payload(elements->data(), elements->size() * sizeof(float));
      if (!writer->Write(frame)) break;  // Finish() returns the error
    }
    writer->WritesDone();
    const absl::Status status = FromGrpcStatus(writer->Finish());
    if (!status.ok()) return status;
    const Verdict expected = step == 0 ? INITIALIZED : ACCEPTED;
    for (const BlockVerdict& block : reply.block()) {
      const bool is_within_bound = block.lag() <= largest_lag;
      if (block.verdict() == expected && is_within_bound) continue;
      if (block.verdict() == REJECTED_STALE && !is_within_bound) {
        refused.push_back(block.block());
        continue;
      }
      return absl::InternalError(absl::StrCat("step ", step, " of block ", block.block(), " is ",
                                              Verdict_Name(block.verdict()), " at a lag of ",
                                              block.lag()));
    }
    if (step > 0 && reply.block_size() != static_cast<int>(owned.size())) {
      return absl::InternalError("the acknowledgement does not contain a verdict for each block");
    }
    return absl::OkStatus();
  });
  if (!pushed.ok()) return pushed;
  return refused;
}

}  // namespace torchps
