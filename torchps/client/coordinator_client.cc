#include "torchps/client/coordinator_client.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "torchps/client/calls/address_resolver.h"
#include "torchps/common/text.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr absl::Duration kPromptTimeout = absl::Seconds(5);
constexpr absl::Duration kParkTimeout = absl::Seconds(30);
// Pause between two attempts of Join(). It bounds the time until Join() notices an expired lease.
constexpr absl::Duration kSlotRetry = absl::Milliseconds(100);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(3);

RetryDeadline::Options PatienceOptions(const CoordinatorClient::Options& options) {
  RetryDeadline::Options patience;
  patience.patience = options.patience;
  patience.log = options.log;
  patience.clock = options.clock;
  return patience;
}

}  // namespace

CoordinatorClient::CoordinatorClient(Options options)
    : options_(std::move(options)),
      server_(options_.server),
      stub_(Coordinator::NewStub(server_.channel)),
      patience_(server_, PatienceOptions(options_)) {}

std::shared_ptr<Coordinator::Stub> CoordinatorClient::stub() const {
  MutexLock lock(&mutex_);
  return stub_;
}

bool CoordinatorClient::Follow() {
  const std::optional<ServerEndpoint> moved = MovedFrom(server_, patience_.silence());
  if (!moved.has_value()) return false;
  options_.log(absl::StrCat("the coordinator does not answer at ", server_.address,
                            " any more; trying ", moved->address));
  server_ = *moved;
  patience_.MovedTo(server_);
  MutexLock lock(&mutex_);
  stub_ = Coordinator::NewStub(server_.channel);
  return true;
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> CoordinatorClient::Call(Method<Request, Reply> method, const Request& request,
                                              Rules rules) {
  const absl::Duration give_up = options_.clock->Now() + rules.patience;
  while (true) {
    if (rules.stoppable && options_.stop->stopped()) {
      return absl::CancelledError(options_.stop->reason());
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + rules.timeout));
    Reply reply;
    absl::Status status;
    {
      std::optional<StopLatch::Registration> on_stop;
      if (rules.stoppable) on_stop.emplace(options_.stop, [&context] { context.TryCancel(); });
      status = FromGrpcStatus((stub().get()->*method)(&context, request, &reply));
    }
    if (status.ok()) {
      patience_.Answered();
      return reply;
    }
    if (rules.stoppable && options_.stop->stopped()) continue;
    // While the coordinator was down, another program may have taken over the address.
    const bool is_stranger =
        absl::IsUnimplemented(status) && incarnation_ != 0 && server_.book != nullptr;
    if (absl::IsUnimplemented(status) && !is_stranger) return NoTorchpsServer(server_);
    if (!is_stranger && !RetryDeadline::MayRetry(status)) {
      return absl::Status(status.code(), absl::StrCat(server_.name(), ": ", status.message()));
    }
    if (absl::IsDeadlineExceeded(status) && rules.may_park &&
        server_.channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
      patience_.Answered();
      continue;
    }
    // A coordinator that is reading a large job says so in the status. An unreachable coordinator
    // is silent.
    const std::optional<std::string> busy = BusyWith(status);
    const absl::StatusOr<absl::Duration> delay =
        busy.has_value() ? patience_.Busy(Printable(*busy)) : patience_.Failed(status);
    if (!delay.ok()) return delay.status();
    if (Follow()) continue;
    if (options_.clock->Now() + *delay >= give_up) return status;
    if (rules.stoppable) {
      options_.stop->WaitFor(*delay);
    } else {
      // After a stop, WaitFor() would return at once, and the retries would follow without a pause.
      absl::SleepFor(*delay);
    }
  }
}

absl::StatusOr<JoinReply> CoordinatorClient::Join(const JoinRequest& request) {
  Rules rules;
  rules.timeout = kPromptTimeout;
  const absl::Duration give_up = options_.clock->Now() + options_.patience;
  bool told = false;
  absl::StatusOr<JoinReply> reply = Call(&Coordinator::Stub::Join, request, rules);
  while (absl::IsResourceExhausted(reply.status())) {
    const std::string holder(reply.status().message());
    if (options_.clock->Now() >= give_up) return absl::FailedPreconditionError(holder);
    if (!std::exchange(told, true)) options_.log(absl::StrCat("waiting for a slot: ", holder));
    options_.stop->WaitFor(kSlotRetry);
    reply = Call(&Coordinator::Stub::Join, request, rules);
  }
  if (reply.ok()) {
    slot_ = reply->slot();
    incarnation_ = reply->incarnation();
  }
  return reply;
}

absl::StatusOr<AwaitStartReply::Action> CoordinatorClient::AwaitStart(bool initialized) {
  AwaitStartRequest request;
  request.set_slot(slot_);
  request.set_incarnation(incarnation_);
  request.set_initialized(initialized);
  if (initialized) request.set_initialization(initialization_);
  Rules rules;
  rules.timeout = kParkTimeout;
  rules.may_park = true;
  const absl::StatusOr<AwaitStartReply> reply =
      Call(&Coordinator::Stub::AwaitStart, request, rules);
  if (!reply.ok()) return reply.status();
  initialization_ = reply->initialization();
  return reply->action();
}

absl::StatusOr<NextWorkReply> CoordinatorClient::NextWork(uint64_t finished_lease,
                                                          const StepFigures& figures,
                                                          absl::Span<const LeaseRange> lost,
                                                          bool idle) {
  NextWorkRequest request;
  request.set_slot(slot_);
  request.set_incarnation(incarnation_);
  request.set_finished_lease(finished_lease);
  *request.mutable_figures() = figures;
  *request.mutable_lost() = {lost.begin(), lost.end()};
  request.set_call(++calls_);
  request.set_idle(idle);
  Rules rules;
  rules.timeout = idle ? kParkTimeout : kPromptTimeout;
  rules.may_park = idle;
  return Call(&Coordinator::Stub::NextWork, request, rules);
}

absl::Status CoordinatorClient::ReportEvaluation(const EvaluationResult& result) {
  ReportEvaluationRequest request;
  request.set_slot(slot_);
  request.set_incarnation(incarnation_);
  *request.mutable_result() = result;
  Rules rules;
  // The server first puts the best model in place, after it has written the uploads of other slots.
  rules.timeout = kParkTimeout;
  rules.may_park = true;
  return Call(&Coordinator::Stub::ReportEvaluation, request, rules).status();
}

absl::Status CoordinatorClient::StoreModel(ModelFile file, int64_t bytes, int64_t offset,
                                           absl::string_view data) {
  StoreModelRequest request;
  request.set_slot(slot_);
  request.set_incarnation(incarnation_);
  request.set_file(file);
  request.set_bytes(bytes);
  request.set_offset(offset);
  request.set_data(data.data(), data.size());
  Rules rules;
  // The server answers the last piece only when all pieces are on disk.
  rules.timeout = kParkTimeout;
  rules.may_park = true;
  return Call(&Coordinator::Stub::StoreModel, request, rules).status();
}

absl::Status CoordinatorClient::LeaveJob(const std::string& reason) {
  LeaveJobRequest request;
  request.set_slot(slot_);
  request.set_incarnation(incarnation_);
  request.set_reason(reason);
  Rules rules;
  rules.timeout = kLeaveTimeout;
  rules.stoppable = false;
  rules.patience = kLeaveTimeout;
  return Call(&Coordinator::Stub::LeaveJob, request, rules).status();
}

absl::StatusOr<RenewSlotReply> CoordinatorClient::RenewSlot(absl::Duration timeout,
                                                            RenewSlotRequest request) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  request.set_slot(slot_);
  request.set_incarnation(incarnation_);
  RenewSlotReply reply;
  const absl::Status status = FromGrpcStatus(stub()->RenewSlot(&context, request, &reply));
  if (!status.ok()) return status;
  return reply;
}

}  // namespace torchps
