#include "tests/fault/nemesis/nemesis_wire.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/interceptor.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

// Returns the message that is being sent, parsed from its bytes. Push sends raw bytes, the other
// calls send Protobuf messages.
template <typename Message>
Message Sent(InterceptorBatchMethods* methods) {
  // Deserialize() consumes the bytes, so use a copy; the copy shares the memory.
  grpc::ByteBuffer bytes = *methods->GetSerializedSendMessage();
  Message message;
  TPS_CHECK(grpc::SerializationTraits<Message>::Deserialize(&bytes, &message).ok(),
            "this process sent an invalid message");
  return message;
}

bool Succeeded(InterceptorBatchMethods* methods) {
  return methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_STATUS) &&
         methods->GetRecvStatus()->ok();
}

}  // namespace

// Observes nothing. gRPC 1.51 needs an interceptor for each call, also for calls that the journal
// ignores.
class NemesisWire::OtherCall final : public Interceptor {
 public:
  void Intercept(InterceptorBatchMethods* methods) override { methods->Proceed(); }
};

class NemesisWire::HelloCall final : public Interceptor {
 public:
  explicit HelloCall(NemesisWire* wire) : wire_(wire) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const auto request = Sent<HelloRequest>(methods);
      server_ = request.server_index();
      only_restores_ = request.only_restores();
      wire_->HelloBegins(request);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        methods->GetRecvMessage() != nullptr) {
      const auto* const message =
          static_cast<const google::protobuf::MessageLite*>(methods->GetRecvMessage());
      reply_ = *static_cast<const HelloReply*>(message);
    }
    const bool tells_steps = reply_.has_value() && !only_restores_;
    if (Succeeded(methods) && tells_steps) wire_->HelloAnswered(server_, *reply_);
    methods->Proceed();
  }

 private:
  NemesisWire* const wire_;
  int server_ = 0;
  bool only_restores_ = false;
  std::optional<HelloReply> reply_;
};

class NemesisWire::PullCall final : public Interceptor {
 public:
  explicit PullCall(NemesisWire* wire) : wire_(wire) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      wire_->PullBegins(Sent<PullRequest>(methods));
    }
    methods->Proceed();
  }

 private:
  NemesisWire* const wire_;
};

// Handles a stream of frames, whose messages are raw bytes.
class NemesisWire::PushCall final : public Interceptor {
 public:
  explicit PushCall(NemesisWire* wire) : wire_(wire) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (!step_.has_value() &&
        methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      const auto frame = Sent<PushFrame>(methods);
      step_ = frame.step();
      server_ = wire_->job_.map.blocks().at(frame.block()).server;
      wire_->PushBegins(*step_);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        methods->GetRecvMessage() != nullptr) {
      grpc::ByteBuffer bytes = *static_cast<const grpc::ByteBuffer*>(methods->GetRecvMessage());
      PushReply reply;
      if (grpc::SerializationTraits<PushReply>::Deserialize(&bytes, &reply).ok()) reply_ = reply;
    }
    if (Succeeded(methods) && reply_.has_value() && step_.has_value()) {
      wire_->PushAnswered(server_, *step_, *reply_);
    }
    methods->Proceed();
  }

 private:
  NemesisWire* const wire_;
  int server_ = 0;
  std::optional<Step> step_;
  std::optional<PushReply> reply_;
};

NemesisWire* NemesisWire::Listen(NemesisJob job, const std::string& journal_path) {
  auto* const wire = new NemesisWire(std::move(job), journal_path);
  grpc::experimental::RegisterGlobalClientInterceptorFactory(wire);
  return wire;
}

NemesisWire::NemesisWire(NemesisJob job, const std::string& journal_path)
    : job_(std::move(job)), journal_(journal_path) {}

Interceptor* NemesisWire::CreateClientInterceptor(grpc::experimental::ClientRpcInfo* info) {
  const absl::string_view method = info->method();
  if (method == "/torchps.ParameterService/Hello") return new HelloCall(this);
  if (method == "/torchps.ParameterService/Pull") return new PullCall(this);
  if (method == "/torchps.ParameterService/Push") return new PushCall(this);
  return new OtherCall;
}

NemesisWire::Name NemesisWire::NameOfGradient() {
  MutexLock lock(&mutex_);
  computed_ = pulled_ + 1;
  return {slot_, computed_};
}

void NemesisWire::HelloBegins(const HelloRequest& request) {
  MutexLock lock(&mutex_);
  if (request.incarnation() == incarnation_) return;
  TPS_CHECK(incarnation_ == 0, "one process said Hello with two incarnations");
  incarnation_ = request.incarnation();
  slot_ = request.slot();
  journal_.Start(incarnation_);
}

void NemesisWire::HelloAnswered(int server, const HelloReply& reply) {
  // The server is restoring the job and does not report steps yet.
  if (reply.has_restoring()) return;
  MutexLock lock(&mutex_);
  journal_.Greeted(server, reply);
}

void NemesisWire::PullBegins(const PullRequest& request) {
  // A read-only pull does not lead to a gradient.
  if (request.read_only()) return;
  MutexLock lock(&mutex_);
  pulled_ = request.clock();
}

void NemesisWire::PushBegins(Step step) {
  MutexLock lock(&mutex_);
  // Step 0 pushes the initial values. A repeated push is in the journal already.
  if (step == 0 || step == begun_) return;
  TPS_CHECK(step == computed_, "the gradient was computed for another step");
  TPS_CHECK(step > begun_, "a step is pushed after a later one");
  begun_ = step;
  missing_.clear();
  for (int server = 0; server < NemesisJob::kServers; ++server) missing_.insert(server);
  journal_.Begin(step);
}

void NemesisWire::PushAnswered(int server, Step step, const PushReply& reply) {
  const Verdict expected = step == 0 ? INITIALIZED : ACCEPTED;
  std::vector<BlockId> told;
  for (const BlockVerdict& block : reply.block()) {
    TPS_CHECK(block.verdict() == expected, "a block was not applied");
    told.push_back(block.block());
  }
  if (step == 0) return;
  TPS_CHECK(std::set<BlockId>(told.begin(), told.end()).size() == told.size() &&
                told.size() == job_.map.owned_by(server).size(),
            "the acknowledgement does not contain a verdict for each block");
  MutexLock lock(&mutex_);
  journal_.Acknowledged(server, step);
  if (missing_.erase(server) > 0 && missing_.empty()) journal_.Done(step, clock_.Now());
}

}  // namespace torchps
