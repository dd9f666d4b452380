#include "program/members/member_exchange.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/calls/server_channel.h"
#include "common/backoff.h"
#include "common/ids.h"
#include "grpcpp/client_context.h"
#include "wire/status_codec.h"
#include "worker/members/tensor_codec.h"

namespace torchps {
namespace {

// Two may be lost before a process counts as dead.
constexpr double kBeatsPerLease = 3;

// A call that the leader parks is made again after so long.
constexpr absl::Duration kMeetTimeout = absl::Seconds(30);

// Who says farewell does not wait long for those that it cannot reach.
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
  listener.on_parcel = [raw = exchange.get()](Parcel parcel) {
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
      mailbox_(options_.stop),
      ready_(static_cast<size_t>(options_.stages)) {
  on_stop_.emplace(options_.stop, [this] {
    const MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  });
}

MemberExchange::~MemberExchange() {
  {
    const MutexLock lock(&mutex_);
    ended_ = true;
    changed_.SignalAll();
  }
  if (beats_.joinable()) beats_.join();
  // The others may still want to hear the last order, and miss this process when it listens no
  // more.
  if (post_ != nullptr) post_->Drain();
  DismissVisitors(absl::UnavailableError("the replica's leader has ended"));
  if (listener_ != nullptr) listener_->Stop();
}

void MemberExchange::DismissVisitors(const absl::Status& why) {
  std::map<int, Visitor> visitors;
  {
    const MutexLock lock(&mutex_);
    std::swap(visitors, visitors_);
  }
  for (const auto& [stage, visitor] : visitors) visitor.call->Respond(why);
}

void MemberExchange::Connect(const std::vector<std::string>& addresses) {
  addresses_ = addresses;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int stage = 0; stage < stages(); ++stage) {
    channels.push_back(stage == options_.stage
                           ? nullptr
                           : ConnectToMember(addresses_[stage], options_.certificates));
  }
  post_ = std::make_unique<ParcelPost>(
      channels,
      [this](int to, Parcel::Kind kind, const absl::Status& why) { OnLost(to, kind, why); });
  beats_ = std::thread([this] { Beat(); });
}

std::string MemberExchange::NameOf(int stage) const {
  return absl::StrCat("stage ", stage, " at ", addresses_[stage]);
}

// ----------------------------------------------------------------------------------- the meeting

absl::Status MemberExchange::CheckVisitor(const MeetRequest& visitor) const {
  const auto differs = [&](const std::string& what, int64_t theirs, int64_t ours) {
    return absl::FailedPreconditionError(absl::StrCat("stage ", visitor.stage(), " has ", what, " ",
                                                      theirs, ", and the replica's leader ", ours));
  };
  if (visitor.protocol_version() != own_->protocol_version()) {
    return differs("protocol", visitor.protocol_version(), own_->protocol_version());
  }
  if (visitor.stages() != stages()) return differs("stages:", visitor.stages(), stages());
  if (visitor.stage() <= 0 || visitor.stage() >= stages()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stage is ", visitor.stage(), "; expected 1 to ", stages() - 1, " of who does not lead"));
  }
  if (visitor.train_samples() != own_->train_samples()) {
    return differs("training samples:", visitor.train_samples(), own_->train_samples());
  }
  if (visitor.data_fingerprint() != 0 && own_->data_fingerprint() != 0 &&
      visitor.data_fingerprint() != own_->data_fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", visitor.stage(),
                     " has other data than the replica's leader: the samples differ"));
  }
  return absl::OkStatus();
}

void MemberExchange::OnMeet(const MemberListener::MeetCall& call) {
  const MeetRequest& request = call->request();
  absl::StatusOr<MeetReply> answer = absl::UnavailableError("the replica's leader has ended");
  bool is_parked = false;
  // Whom another process of that stage replaces.
  MemberListener::MeetCall replaced;
  {
    const MutexLock lock(&mutex_);
    const auto known = nonces_.find(request.stage());
    if (options_.stage != 0) {
      answer = absl::FailedPreconditionError(absl::StrCat(
          "stage ", options_.stage, " does not lead its replica; the first address is stage 0's"));
    } else if (meeting_.has_value()) {
      if (known != nonces_.end() && known->second == request.nonce()) {
        answer = *meeting_;
      } else {
        answer = absl::UnavailableError(
            "the replica's leader takes part with other processes, until it misses them");
      }
    } else if (!ended_) {
      const absl::Status fits = own_.has_value() ? CheckVisitor(request) : absl::OkStatus();
      if (fits.ok()) {
        Visitor& visitor = visitors_[request.stage()];
        replaced = std::exchange(visitor.call, call);
        visitor.request = request;
        is_parked = true;
        changed_.SignalAll();
      } else {
        answer = fits;
      }
    }
  }
  if (replaced != nullptr) replaced->Respond(absl::UnavailableError("came again"));
  if (!is_parked) call->Respond(answer);
}

std::string MemberExchange::Missing() const {
  std::vector<std::string> missing;
  for (int stage = 1; stage < stages(); ++stage) {
    if (visitors_.count(stage) == 0) missing.push_back(NameOf(stage));
  }
  return absl::StrJoin(missing, " and ");
}

absl::StatusOr<std::vector<MeetRequest>> MemberExchange::Gather(const MeetRequest& own) {
  const absl::Duration until = options_.clock->Now() + options_.patience;
  std::vector<std::pair<MemberListener::MeetCall, absl::Status>> refused;
  absl::StatusOr<std::vector<MeetRequest>> gathered;
  {
    const MutexLock lock(&mutex_);
    own_ = own;
    // Those who came before it was known who fits.
    for (auto it = visitors_.begin(); it != visitors_.end();) {
      const absl::Status fits = CheckVisitor(it->second.request);
      if (fits.ok()) {
        ++it;
      } else {
        refused.emplace_back(it->second.call, fits);
        it = visitors_.erase(it);
      }
    }
    while (static_cast<int>(visitors_.size()) + 1 < stages() && !stopped_) {
      const absl::Duration left = until - options_.clock->Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(&mutex_, std::min(left, absl::Milliseconds(100)));
    }
    if (static_cast<int>(visitors_.size()) + 1 == stages()) {
      std::vector<MeetRequest> members = {own};
      for (const auto& [stage, visitor] : visitors_) {
        members.push_back(visitor.request);
        nonces_[stage] = visitor.request.nonce();
      }
      gathered = std::move(members);
    } else if (stopped_) {
      gathered = absl::CancelledError("stopped");
    } else {
      gathered = absl::UnavailableError(absl::StrCat("of the replica, ", Missing(),
                                                     " did not come within ",
                                                     absl::FormatDuration(options_.patience)));
    }
  }
  for (const auto& [call, why] : refused) call->Respond(why);
  return gathered;
}

void MemberExchange::Begin(MeetReply reply) {
  std::map<int, Visitor> visitors;
  {
    const MutexLock lock(&mutex_);
    mailbox_.Open(reply.meeting());
    meeting_ = reply;
    began_ = options_.clock->Now();
    std::swap(visitors, visitors_);
    // One may have been replaced since they were gathered, and another process is none of them.
    for (auto it = visitors.begin(); it != visitors.end(); ++it) {
      if (nonces_[it->first] == it->second.request.nonce()) continue;
      it->second.request.clear_nonce();
    }
    changed_.SignalAll();
  }
  for (const auto& [stage, visitor] : visitors) {
    visitor.call->Respond(visitor.request.nonce() != 0
                              ? absl::StatusOr<MeetReply>(reply)
                              : absl::UnavailableError("came after the replica had gathered"));
  }
}

absl::StatusOr<MeetReply> MemberExchange::Meet(const MeetRequest& own) {
  const std::shared_ptr<grpc::Channel> channel =
      ConnectToMember(addresses_[0], options_.certificates);
  const std::unique_ptr<Replica::Stub> stub = Replica::NewStub(channel);
  Backoff backoff({}, own.nonce());
  absl::Duration heard = options_.clock->Now();
  while (true) {
    MeetReply reply;
    grpc::Status called;
    {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + kMeetTimeout));
      const StopLatch::Registration on_stop(options_.stop, [&context] { context.TryCancel(); });
      called = stub->Meet(&context, own, &reply);
    }
    const absl::Status status = FromGrpcStatus(called);
    if (status.ok()) {
      const MutexLock lock(&mutex_);
      mailbox_.Open(reply.meeting());
      meeting_ = reply;
      began_ = options_.clock->Now();
      changed_.SignalAll();
      return reply;
    }
    if (options_.stop->stopped()) return absl::CancelledError(options_.stop->reason());
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return absl::Status(status.code(), absl::StrCat(NameOf(0), ": ", status.message()));
    }
    // It is there, and waits for the others or for its slot.
    if (absl::IsDeadlineExceeded(status)) heard = options_.clock->Now();
    if (options_.clock->Now() - heard >= options_.patience) {
      return absl::UnavailableError(
          absl::StrCat(NameOf(0), ", the replica's leader, did not begin ", "within ",
                       absl::FormatDuration(options_.patience), ": ", status.message()));
    }
    if (options_.stop->WaitFor(backoff.Next())) {
      return absl::CancelledError(options_.stop->reason());
    }
  }
}

// ----------------------------------------------------------------------------------- the parcels

void MemberExchange::Send(int to, Parcel parcel, const torch::Tensor& tensor) {
  if (!mailbox_.status().ok()) return;
  parcel.set_from(options_.stage);
  {
    const MutexLock lock(&mutex_);
    if (!meeting_.has_value()) return;
    parcel.set_meeting(meeting_->meeting());
  }
  const torch::Tensor bytes = tensor.defined() ? tensor.to(torch::kCPU).contiguous() : tensor;
  const absl::StatusOr<TensorHeader> header = DescribeTensor(bytes);
  if (!header.ok()) return Fail(header.status());
  const bool wants_gradient = parcel.tensor().wants_gradient();
  if (parcel.kind() == Parcel::ACTIVATION || parcel.kind() == Parcel::GRADIENT) {
    *parcel.mutable_tensor() = *header;
    parcel.mutable_tensor()->set_wants_gradient(wants_gradient);
    constexpr int64_t kRoomForHeader = 4096;
    if (bytes.defined() &&
        static_cast<int64_t>(bytes.nbytes()) > kMaxParcelBytes - kRoomForHeader) {
      return Fail(absl::InvalidArgumentError(
          absl::StrCat("what stage ", options_.stage, " passes on of a micro-batch has ",
                       bytes.nbytes(), " bytes; the limit is ", kMaxParcelBytes - kRoomForHeader,
                       ": set --micro_batches higher")));
    }
  }
  post_->Send(to, parcel, bytes, options_.lease);
}

absl::StatusOr<Exchange::Delivery> MemberExchange::Take(int from, const Name& name) {
  absl::StatusOr<Parcel> parcel = mailbox_.Take(from, name);
  if (!parcel.ok()) return parcel.status();
  absl::StatusOr<torch::Tensor> tensor = TakeTensor(&*parcel);
  if (!tensor.ok()) {
    return absl::Status(tensor.status().code(),
                        absl::StrCat(NameOf(from), " sent ", tensor.status().message()));
  }
  return Delivery{*std::move(parcel), *std::move(tensor)};
}

absl::Status MemberExchange::OnParcel(Parcel parcel) {
  if (parcel.from() < 0 || parcel.from() >= stages() || parcel.from() == options_.stage) {
    return absl::InvalidArgumentError(absl::StrCat("a parcel from stage ", parcel.from(), " of ",
                                                   stages(), " came to stage ", options_.stage));
  }
  if (absl::Status status = mailbox_.Check(parcel.meeting()); !status.ok()) return status;
  switch (parcel.kind()) {
    case Parcel::BEAT:
      return absl::OkStatus();
    case Parcel::FAREWELL:
      End(absl::UnavailableError(
          absl::StrCat("stage ", parcel.from(), " of the replica has ended: ", parcel.reason())));
      post_->Cancel();
      return absl::OkStatus();
    case Parcel::READY: {
      const MutexLock lock(&mutex_);
      ready_[parcel.from()] = true;
      break;
    }
    case Parcel::ORDER:
    case Parcel::ACTIVATION:
    case Parcel::GRADIENT:
    case Parcel::COMPUTED:
    case Parcel::RULING:
    case Parcel::DONE:
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "a parcel of kind ", static_cast<int>(parcel.kind()), ", which is not known"));
  }
  return mailbox_.Put(std::move(parcel));
}

// -------------------------------------------------------------------------------------- the end

void MemberExchange::OnLost(int to, Parcel::Kind kind, const absl::Status& why) {
  {
    const MutexLock lock(&mutex_);
    // The other one's process has been told of the meeting and may not have read it yet.
    const bool is_early = kind == Parcel::BEAT && absl::IsAborted(why) && !ready_[to] &&
                          options_.clock->Now() < began_ + options_.patience;
    if (ended_ || is_early) return;
  }
  Fail(
      absl::UnavailableError(absl::StrCat(NameOf(to), " of the replica is gone: ", why.message())));
}

bool MemberExchange::End(const absl::Status& status) {
  if (!mailbox_.Fail(status)) return false;
  options_.stop->Stop(std::string(status.message()));
  return true;
}

void MemberExchange::Fail(const absl::Status& status) {
  if (!End(status) || post_ == nullptr) return;
  DismissVisitors(status);
  post_->Cancel();
  SayFarewell(std::string(status.message()));
}

void MemberExchange::SayFarewell(const std::string& reason) {
  Parcel farewell;
  farewell.set_kind(Parcel::FAREWELL);
  farewell.set_from(options_.stage);
  farewell.set_reason(reason);
  {
    const MutexLock lock(&mutex_);
    if (!meeting_.has_value()) return;
    farewell.set_meeting(meeting_->meeting());
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
  listener_->Stop();
}

void MemberExchange::Beat() {
  const absl::Duration interval = options_.lease / kBeatsPerLease;
  while (true) {
    Parcel beat;
    {
      const MutexLock lock(&mutex_);
      const absl::Duration next = options_.clock->Now() + interval;
      while (!ended_ && options_.clock->Now() < next) {
        changed_.WaitFor(&mutex_, next - options_.clock->Now());
      }
      if (ended_) return;
      if (!meeting_.has_value()) continue;
      beat.set_meeting(meeting_->meeting());
    }
    if (!mailbox_.status().ok()) continue;
    beat.set_kind(Parcel::BEAT);
    beat.set_from(options_.stage);
    const int others = leads() ? stages() : 1;
    for (int stage = leads() ? 1 : 0; stage < others; ++stage) {
      post_->Send(stage, beat, torch::Tensor(), options_.lease);
    }
  }
}

}  // namespace torchps
