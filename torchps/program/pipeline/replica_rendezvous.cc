#include "torchps/program/pipeline/replica_rendezvous.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "grpcpp/server_builder.h"
#include "torchps/client/calls/server_channel.h"

namespace torchps {

namespace {

// The time that Stop() gives to calls in progress. It is short, because only parked calls take
// longer, and these are cancelled.
constexpr absl::Duration kDrainTime = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<MemberListener>> MemberListener::Start(Options options) {
  auto listener = absl::WrapUnique(new MemberListener(std::move(options)));
  if (absl::Status status = listener->Listen(); !status.ok()) return status;
  return listener;
}

MemberListener::MemberListener(Options options)
    : options_(std::move(options)),
      admission_(options_.log,
                 [this](const grpc::ServerContext& context) { door_->EndHandshake(context); }) {}

absl::Status MemberListener::Listen() {
  Listener::Options door;
  door.listen = options_.listen;
  door.certificates = options_.certificates;
  door.insecure = options_.insecure;
  door.danger = "read and change what is trained";
  door.remedy =
      "Give the replica's processes certificates with --certs=DIR ('psctl certs' makes them), or "
      "let them listen on 127.0.0.1";
  door.log = options_.log;
  door.clock = options_.clock;
  absl::StatusOr<std::unique_ptr<Listener>> made = Listener::Create(std::move(door));
  if (!made.ok()) return made.status();
  door_ = *std::move(made);

  grpc::ServerBuilder builder;
  door_->Attach(&builder);
  // Allows the clients' keepalive. Otherwise gRPC closes their connections with "too many pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.SetMaxReceiveMessageSize(kMaxParcelBytes);
  builder.RegisterService(&service_);
  poller_ = std::make_unique<Poller>(builder.AddCompletionQueue());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start a server");
  ListenFor(poller_.get(), &admission_, &service_, &Replica::AsyncService::RequestMeet,
            options_.on_meet);
  ListenFor(poller_.get(), &admission_, &service_, &Replica::AsyncService::RequestDeliver,
            [this](const UnaryCall<TensorMessage, DeliverReply>::Pointer& call) {
              const absl::Status taken = options_.on_parcel(call->TakeRequest());
              call->Respond(taken.ok() ? absl::StatusOr<DeliverReply>(DeliverReply()) : taken);
            });
  poller_->Start(/*threads=*/1);
  door_->Open();
  return absl::OkStatus();
}

void MemberListener::Stop() {
  if (server_ == nullptr) return;
  door_->Close();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kDrainTime));
  poller_->Stop();
  server_ = nullptr;
}

ReplicaRendezvous::ReplicaRendezvous(Options options)
    : options_(std::move(options)), on_stop_(options_.stop, [this] {
        const MutexLock lock(&mutex_);
        stopped_ = true;
        changed_.SignalAll();
      }) {}

absl::Status ReplicaRendezvous::Check(const RendezvousRequest& visitor) const {
  const auto differs = [&](const std::string& what, int64_t theirs, int64_t ours) {
    return absl::FailedPreconditionError(absl::StrCat("stage ", visitor.stage(), " has ", what, " ",
                                                      theirs, "; the replica's leader has ", ours));
  };
  if (visitor.protocol_version() != own_->protocol_version()) {
    return differs("protocol", visitor.protocol_version(), own_->protocol_version());
  }
  if (visitor.stages() != options_.stages)
    return differs("stages:", visitor.stages(), options_.stages);
  if (visitor.stage() <= 0 || visitor.stage() >= options_.stages) {
    return absl::FailedPreconditionError(absl::StrCat("stage is ", visitor.stage(),
                                                      "; expected 1 to ", options_.stages - 1,
                                                      ", because stage 0 is the leader"));
  }
  if (visitor.train_samples() != own_->train_samples()) {
    return differs("training samples:", visitor.train_samples(), own_->train_samples());
  }
  if (visitor.data_fingerprint() != 0 && own_->data_fingerprint() != 0 &&
      visitor.data_fingerprint() != own_->data_fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stage ", visitor.stage(), " and the replica's leader have different samples"));
  }
  return absl::OkStatus();
}

void ReplicaRendezvous::Visit(const RendezvousRequest& visitor, Answer answer) {
  absl::StatusOr<RendezvousReply> reply = absl::UnavailableError("the replica's leader has ended");
  // The answer of an earlier process of that stage, which this visitor replaces.
  Answer replaced;
  {
    const MutexLock lock(&mutex_);
    const auto known = nonces_.find(visitor.stage());
    if (meeting_.has_value()) {
      if (known != nonces_.end() && known->second == visitor.nonce()) {
        reply = *meeting_;
      } else {
        reply = absl::UnavailableError(
            "the replica's leader still works with other processes, until they time out");
      }
    } else if (!closed_) {
      const absl::Status fits = own_.has_value() ? Check(visitor) : absl::OkStatus();
      if (fits.ok()) {
        Visitor& place = visitors_[visitor.stage()];
        replaced = std::exchange(place.answer, std::exchange(answer, nullptr));
        place.request = visitor;
        changed_.SignalAll();
      } else {
        reply = fits;
      }
    }
  }
  if (replaced != nullptr) replaced(absl::UnavailableError("came again"));
  if (answer != nullptr) answer(reply);
}

std::string ReplicaRendezvous::Missing() const {
  std::vector<std::string> missing;
  for (int stage = 1; stage < options_.stages; ++stage) {
    if (visitors_.count(stage) == 0) missing.push_back(options_.name_of(stage));
  }
  return absl::StrJoin(missing, " and ");
}

absl::StatusOr<std::vector<RendezvousRequest>> ReplicaRendezvous::Gather(
    const RendezvousRequest& own) {
  const absl::Duration until = options_.clock->Now() + options_.patience;
  std::vector<std::pair<Answer, absl::Status>> refused;
  absl::StatusOr<std::vector<RendezvousRequest>> gathered;
  {
    const MutexLock lock(&mutex_);
    own_ = own;
    // Check the visitors that arrived before the leader's request was known.
    for (auto it = visitors_.begin(); it != visitors_.end();) {
      const absl::Status fits = Check(it->second.request);
      if (fits.ok()) {
        ++it;
      } else {
        refused.emplace_back(std::move(it->second.answer), fits);
        it = visitors_.erase(it);
      }
    }
    while (static_cast<int>(visitors_.size()) + 1 < options_.stages && !stopped_) {
      const absl::Duration left = until - options_.clock->Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(&mutex_, std::min(left, absl::Milliseconds(100)));
    }
    if (static_cast<int>(visitors_.size()) + 1 == options_.stages) {
      std::vector<RendezvousRequest> members = {own};
      for (const auto& [stage, visitor] : visitors_) {
        members.push_back(visitor.request);
        nonces_[stage] = visitor.request.nonce();
      }
      gathered = std::move(members);
    } else if (stopped_) {
      gathered = absl::CancelledError("stopped");
    } else {
      gathered = absl::UnavailableError(absl::StrCat("the replica is incomplete: ", Missing(),
                                                     " did not connect within ",
                                                     absl::FormatDuration(options_.patience)));
    }
  }
  for (const auto& [answer, why] : refused) answer(why);
  return gathered;
}

void ReplicaRendezvous::Begin(const RendezvousReply& meeting) {
  std::map<int, Visitor> visitors;
  std::map<int, uint64_t> nonces;
  {
    const MutexLock lock(&mutex_);
    meeting_ = meeting;
    std::swap(visitors, visitors_);
    nonces = nonces_;
  }
  for (const auto& [stage, visitor] : visitors) {
    // A visitor may have been replaced after it was gathered. The new process cannot take part.
    if (nonces[stage] == visitor.request.nonce()) {
      visitor.answer(meeting);
    } else {
      visitor.answer(absl::UnavailableError("connected after the replica had started"));
    }
  }
}

void ReplicaRendezvous::Dismiss(const absl::Status& why) {
  std::map<int, Visitor> visitors;
  {
    const MutexLock lock(&mutex_);
    std::swap(visitors, visitors_);
  }
  for (const auto& [stage, visitor] : visitors) visitor.answer(why);
}

void ReplicaRendezvous::Close(const absl::Status& why) {
  {
    const MutexLock lock(&mutex_);
    closed_ = true;
  }
  Dismiss(why);
}

}  // namespace torchps
