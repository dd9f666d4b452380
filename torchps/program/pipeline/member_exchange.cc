#include "torchps/program/pipeline/member_exchange.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"
#include "torchps/common/clock.h"
#include "torchps/common/types.h"
#include "torchps/transport/status_codec.h"
#include "torchps/worker/pipeline/tensor_codec.h"

namespace torchps {
namespace {

// The number of beats in the time of one lease. Each beat has one lease to be answered.
constexpr double kBeatsPerLease = 3;

// The deadline of a Meet call, which the leader parks. After the deadline, the process repeats the
// call.
constexpr absl::Duration kMeetTimeout = absl::Seconds(30);

// Short, because a farewell must not wait for unreachable processes.
constexpr absl::Duration kFarewellTimeout = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<MemberExchange>> MemberExchange::Listen(Options options) {
  if (options.stage < 0 || options.stage >= options.stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage is ", options.stage, "; the replica has ", options.stages, ", from 0"));
  }
  auto exchange = absl::WrapUnique(new MemberExchange(std::move(options)));
  MemberListener::Options listener;
  listener.listen = exchange->options_.listen;
  listener.certificates = exchange->options_.certificates;
  listener.insecure = exchange->options_.insecure;
  listener.on_meet = [raw = exchange.get()](const MemberListener::MeetCall& call) {
    raw->OnMeet(call);
  };
  listener.on_parcel = [raw = exchange.get()](TensorMessage parcel) {
    return raw->OnParcel(std::move(parcel));
  };
  listener.log = exchange->options_.log;
  listener.clock = exchange->options_.clock;
  absl::StatusOr<std::unique_ptr<MemberListener>> started =
      MemberListener::Start(std::move(listener));
  if (!started.ok()) return started.status();
  exchange->listener_ = *std::move(started);
  return exchange;
}

MemberExchange::MemberExchange(Options options)
    : options_(std::move(options)),
      mailbox_(options_.stop, options_.mailbox_bytes),
      gathering_(GatheringOptions()),
      ready_(static_cast<size_t>(options_.stages)) {}

ReplicaRendezvous::Options MemberExchange::GatheringOptions() const {
  ReplicaRendezvous::Options gathering;
  gathering.stages = options_.stages;
  gathering.patience = options_.patience;
  gathering.name_of = [this](int stage) { return GetName(stage); };
  gathering.clock = options_.clock;
  gathering.stop = options_.stop;
  return gathering;
}

MemberExchange::~MemberExchange() {
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  if (beats_.joinable()) beats_.join();
  // Other processes may still need the last parcels. They notice that this process ends when it
  // stops listening.
  if (post_ != nullptr) post_->Drain();
  // Answer all parked calls first, because shutting down the queue waits for them.
  gathering_.Close(absl::UnavailableError("the replica's leader has ended"));
  if (listener_ != nullptr) listener_->Stop();
}

void MemberExchange::Connect(const std::vector<std::string>& addresses) {
  addresses_ = addresses;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int stage = 0; stage < stages(); ++stage) {
    channels.push_back(stage == options_.stage
                           ? nullptr
                           : ConnectToMember(addresses_[stage], options_.certificates));
  }
  post_ = std::make_unique<TensorSender>(
      channels,
      [this](int to, TensorMessage::Kind kind, const absl::Status& why) { OnLost(to, kind, why); });
  beats_ = std::thread([this] { Beat(); });
}

std::string MemberExchange::GetName(int stage) const {
  return absl::StrCat("stage ", stage, " at ", addresses_[stage]);
}

// ----------------------------------------------------------------------------------- the meeting

void MemberExchange::OnMeet(const MemberListener::MeetCall& call) {
  if (options_.stage != 0) {
    return call->Respond(absl::FailedPreconditionError(
        absl::StrCat("stage ", options_.stage,
                     " is not the replica's leader; the first address must be stage 0's")));
  }
  gathering_.Visit(call->request(),
                   [call](const absl::StatusOr<RendezvousReply>& reply) { call->Respond(reply); });
}

absl::StatusOr<std::vector<RendezvousRequest>> MemberExchange::Gather(
    const RendezvousRequest& own) {
  return gathering_.Gather(own);
}

void MemberExchange::Begin(RendezvousReply reply) {
  Open(reply);
  gathering_.Begin(reply);
}

void MemberExchange::Open(const RendezvousReply& meeting) {
  const MutexLock lock(&mutex_);
  mailbox_.Open(meeting.meeting());
  meeting_ = meeting.meeting();
  began_ = options_.clock->Now();
}

absl::StatusOr<RendezvousReply> MemberExchange::Meet(const RendezvousRequest& own) {
  const std::shared_ptr<grpc::Channel> channel =
      ConnectToMember(addresses_[0], options_.certificates);
  const std::unique_ptr<Replica::Stub> stub = Replica::NewStub(channel);
  Backoff backoff({}, own.nonce());
  absl::Duration heard = options_.clock->Now();
  while (true) {
    RendezvousReply reply;
    grpc::Status called;
    {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + kMeetTimeout));
      const StopLatch::Registration on_stop(options_.stop, [&context] { context.TryCancel(); });
      called = stub->Meet(&context, own, &reply);
    }
    const absl::Status status = FromGrpcStatus(called);
    if (status.ok()) {
      Open(reply);
      return reply;
    }
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return absl::Status(status.code(), absl::StrCat(GetName(0), ": ", status.message()));
    }
    // The deadline passed while the leader parked the call, because it waits for other processes or
    // for its slot.
    if (absl::IsDeadlineExceeded(status)) heard = options_.clock->Now();
    if (options_.clock->Now() - heard >= options_.patience) {
      return absl::UnavailableError(
          absl::StrCat(GetName(0), ", the replica's leader, did not begin ", "within ",
                       absl::FormatDuration(options_.patience), ": ", status.message()));
    }
    if (options_.stop->WaitFor(backoff.Next())) {
      return absl::CancelledError(options_.stop->reason());
    }
  }
}

// ----------------------------------------------------------------------------------- the parcels

void MemberExchange::Send(int to, TensorMessage parcel, const torch::Tensor& tensor) {
  if (!mailbox_.status().ok()) return;
  parcel.set_from(options_.stage);
  {
    const MutexLock lock(&mutex_);
    if (!meeting_.has_value()) return;
    parcel.set_meeting(*meeting_);
  }
  const torch::Tensor bytes = tensor.defined() ? tensor.to(torch::kCPU).contiguous() : tensor;
  const absl::StatusOr<TensorHeader> header = DescribeTensor(bytes);
  if (!header.ok()) return Fail(header.status());
  const bool wants_gradient = parcel.tensor().wants_gradient();
  if (parcel.kind() == TensorMessage::ACTIVATION || parcel.kind() == TensorMessage::GRADIENT) {
    *parcel.mutable_tensor() = *header;
    parcel.mutable_tensor()->set_wants_gradient(wants_gradient);
    constexpr int64_t kRoomForHeader = 4096;
    if (bytes.defined() &&
        static_cast<int64_t>(bytes.nbytes()) > kMaxParcelBytes - kRoomForHeader) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("stage ", options_.stage, " sends ", bytes.nbytes(),
                       " bytes per micro-batch; the limit is ", kMaxParcelBytes - kRoomForHeader,
                       ": set --micro_batches higher")));
    }
  }
  post_->Send(to, parcel, bytes, options_.lease);
}

absl::StatusOr<Exchange::Delivery> MemberExchange::Take(int from, const Name& name) {
  absl::StatusOr<TensorMessage> parcel = mailbox_.Take(from, name);
  if (!parcel.ok()) return parcel.status();
  absl::StatusOr<torch::Tensor> tensor = TakeTensor(&*parcel);
  if (!tensor.ok()) {
    return absl::Status(tensor.status().code(),
                        absl::StrCat(GetName(from), " sent ", tensor.status().message()));
  }
  return Delivery{*std::move(parcel), *std::move(tensor)};
}

absl::Status MemberExchange::OnParcel(TensorMessage parcel) {
  if (parcel.from() < 0 || parcel.from() >= stages() || parcel.from() == options_.stage) {
    return absl::InvalidArgumentError(absl::StrCat("received a parcel from stage ", parcel.from(),
                                                   " of ", stages(), " at stage ", options_.stage));
  }
  if (absl::Status status = mailbox_.Check(parcel.meeting()); !status.ok()) return status;
  switch (parcel.kind()) {
    case TensorMessage::BEAT:
      return absl::OkStatus();
    case TensorMessage::FAREWELL:
      End(absl::UnavailableError(
          absl::StrCat("stage ", parcel.from(), " of the replica has ended: ", parcel.reason())));
      post_->Cancel();
      return absl::OkStatus();
    case TensorMessage::READY: {
      const MutexLock lock(&mutex_);
      ready_[parcel.from()] = true;
      break;
    }
    case TensorMessage::ORDER:
    case TensorMessage::ACTIVATION:
    case TensorMessage::GRADIENT:
    case TensorMessage::COMPUTED:
    case TensorMessage::RULING:
    case TensorMessage::DONE:
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "received a parcel of kind ", static_cast<int>(parcel.kind()), ", which is unknown"));
  }
  return mailbox_.Put(std::move(parcel));
}

// -------------------------------------------------------------------------------------- the end

void MemberExchange::OnLost(int to, TensorMessage::Kind kind, const absl::Status& why) {
  {
    const MutexLock lock(&mutex_);
    // The other process may not have read the leader's reply yet. Until then, it rejects beats.
    const bool is_early = kind == TensorMessage::BEAT && absl::IsAborted(why) && !ready_[to] &&
                          options_.clock->Now() < began_ + options_.patience;
    if (ended_ || is_early) return;
  }
  const bool refused = absl::IsResourceExhausted(why);
  Fail(absl::UnavailableError(absl::StrCat(
      GetName(to), refused ? " of the replica refused a message: " : " of the replica is gone: ",
      why.message())));
}

bool MemberExchange::End(const absl::Status& status) {
  if (!mailbox_.Fail(status)) return false;
  options_.stop->Stop(std::string(status.message()));
  return true;
}

void MemberExchange::Fail(const absl::Status& status) {
  if (!End(status) || post_ == nullptr) return;
  gathering_.Dismiss(status);
  post_->Cancel();
  SayFarewell(std::string(status.message()));
}

void MemberExchange::SayFarewell(const std::string& reason) {
  TensorMessage farewell;
  farewell.set_kind(TensorMessage::FAREWELL);
  farewell.set_from(options_.stage);
  farewell.set_reason(reason);
  {
    const MutexLock lock(&mutex_);
    if (!meeting_.has_value()) return;
    farewell.set_meeting(*meeting_);
  }
  for (int stage = 0; stage < stages(); ++stage) {
    if (stage != options_.stage) post_->Send(stage, farewell, torch::Tensor(), kFarewellTimeout);
  }
}

void MemberExchange::Break() {
  mailbox_.Fail(absl::UnavailableError("broken by a test"));
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  post_->Cancel();
  gathering_.Close(absl::UnavailableError("broken by a test"));
  listener_->Stop();
}

void MemberExchange::Beat() {
  const absl::Duration interval = options_.lease / kBeatsPerLease;
  while (true) {
    TensorMessage beat;
    {
      const MutexLock lock(&mutex_);
      const absl::Duration next = options_.clock->Now() + interval;
      while (!ended_ && options_.clock->Now() < next) {
        changed_.WaitFor(&mutex_, next - options_.clock->Now());
      }
      if (ended_) return;
      if (!meeting_.has_value()) continue;
      beat.set_meeting(*meeting_);
    }
    if (!mailbox_.status().ok()) continue;
    beat.set_kind(TensorMessage::BEAT);
    beat.set_from(options_.stage);
    const int others = leads() ? stages() : 1;
    for (int stage = leads() ? 1 : 0; stage < others; ++stage) {
      post_->Send(stage, beat, torch::Tensor(), options_.lease);
    }
  }
}

}  // namespace torchps
