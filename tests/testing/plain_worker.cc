#include "tests/testing/plain_worker.h"

#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "torchps/common/check.h"
#include "torchps/security/credentials.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// Much longer than any call needs, also with a sanitizer on a busy machine.
constexpr absl::Duration kTimeout = absl::Seconds(60);

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
}

}  // namespace

std::shared_ptr<grpc::Channel> PlainChannel(const std::string& address,
                                            const std::shared_ptr<CertificateFiles>& certificates) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, ChannelCredentialsFor(certificates), arguments);
}

PlainWorker::PlainWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello)
    : hello_(std::move(hello)), stub_(ParameterService::NewStub(std::move(channel))) {
  const absl::StatusOr<ModelLayout> layout = DecodeLayout(hello_.layout());
  TPS_CHECK(layout.ok(), "the test's layout is not valid");
  const auto cut = [&](int servers) {
    return BlockMap::Create(*layout, hello_.job().wire().block_bytes(), servers);
  };
  absl::StatusOr<BlockMap> map = cut(hello_.server_count());
  int index = hello_.server_index();
  // If the server index in `hello_` is impossible, cuts the model for one server. The test wants
  // the server to refuse that Hello.
  if (!map.ok() || index < 0 || index >= hello_.server_count()) {
    map = cut(1);
    index = 0;
  }
  TPS_CHECK(map.ok(), "the test's layout cannot be cut into blocks");
  map_ = *map;
  for (const BlockId id : map_.owned_by(index)) {
    blocks_.push_back(map_.blocks()[id]);
  }
  values_.resize(map_.blocks().size());
  versions_.resize(map_.blocks().size());
}

absl::Status PlainWorker::Hello() {
  HelloReply reply;
  do {
    grpc::ClientContext context;
    SetDeadline(context);
    const absl::Status status = FromGrpcStatus(stub_->Hello(&context, hello_, &reply));
    if (!status.ok()) return status;
  } while (reply.has_restoring());
  hello_reply_ = reply;
  return absl::OkStatus();
}

absl::Status PlainWorker::Initialize(float value) { return Push(/*step=*/0, value).status(); }

PullRequest PlainWorker::RequestPull(Step clock) const {
  PullRequest request;
  request.set_slot(hello_.slot());
  request.set_incarnation(hello_.incarnation());
  request.set_clock(clock);
  request.set_server_incarnation(server_incarnation());
  return request;
}

absl::Status PlainWorker::Pull(Step clock) { return Pull(RequestPull(clock)); }

absl::Status PlainWorker::ReadOnlyPull() {
  PullRequest request;
  request.set_read_only(true);
  return Pull(request);
}

absl::Status PlainWorker::Pull(const PullRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto reader = stub_->Pull(&context, request);
  PullFrame frame;
  size_t frames = 0;
  while (reader->Read(&frame)) {
    ++frames;
    TPS_CHECK(frame.block() < values_.size(), "the server sent a block that is not in the map");
    std::vector<float>& values = values_[frame.block()];
    values.resize(frame.payload().size() / sizeof(float));
    std::memcpy(values.data(), frame.payload().data(), values.size() * sizeof(float));
    versions_[frame.block()] = frame.version();
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  TPS_CHECK(!status.ok() || frames == blocks_.size(),
            "the pull succeeded without returning all blocks");
  return status;
}

PushFrame PlainWorker::Frame(Step step, BlockId block, float gradient) const {
  PushFrame frame;
  frame.set_slot(hello_.slot());
  frame.set_incarnation(hello_.incarnation());
  frame.set_step(step);
  frame.set_block(block);
  frame.set_base_version(versions_[block]);
  frame.set_server_incarnation(server_incarnation());
  frame.set_weight(1);
  frame.set_block_count(static_cast<uint32_t>(blocks().size()));
  const std::vector<float> elements(map_.blocks()[block].length, gradient);
  frame.set_payload(elements.data(), elements.size() * sizeof(float));
  return frame;
}

absl::StatusOr<PushReply> PlainWorker::Push(Step step, float gradient) {
  return PushBlocks(step, [gradient](BlockId) { return gradient; });
}

absl::StatusOr<PushReply> PlainWorker::PushBlocks(Step step,
                                                  const std::function<float(BlockId)>& gradient) {
  std::vector<PushFrame> frames;
  for (const BlockRange& block : blocks()) {
    frames.push_back(Frame(step, block.id, gradient(block.id)));
  }
  return Send(frames);
}

absl::StatusOr<PushReply> PlainWorker::Send(const std::vector<PushFrame>& frames) {
  grpc::ClientContext context;
  SetDeadline(context);
  PushReply reply;
  const auto writer = stub_->Push(&context, &reply);
  for (const PushFrame& frame : frames) {
    if (!writer->Write(frame)) break;  // the call ended; Finish() returns the error
  }
  writer->WritesDone();
  const absl::Status status = FromGrpcStatus(writer->Finish());
  if (!status.ok()) return status;
  return reply;
}

absl::Status PlainWorker::Renew() {
  grpc::ClientContext context;
  SetDeadline(context);
  RenewRequest request;
  request.set_slot(hello_.slot());
  request.set_incarnation(hello_.incarnation());
  request.set_server_incarnation(server_incarnation());
  RenewReply reply;
  return FromGrpcStatus(stub_->Renew(&context, request, &reply));
}

absl::Status PlainWorker::Leave() {
  grpc::ClientContext context;
  SetDeadline(context);
  LeaveRequest request;
  request.set_slot(hello_.slot());
  request.set_incarnation(hello_.incarnation());
  request.set_server_incarnation(server_incarnation());
  LeaveReply reply;
  return FromGrpcStatus(stub_->Leave(&context, request, &reply));
}

absl::StatusOr<ServerStatus> PlainWorker::Status(bool include_ledger) {
  grpc::ClientContext context;
  SetDeadline(context);
  ServerStatusRequest request;
  request.set_include_ledger(include_ledger);
  ServerStatus reply;
  const absl::Status status = FromGrpcStatus(stub_->GetServerStatus(&context, request, &reply));
  if (!status.ok()) return status;
  return reply;
}

}  // namespace torchps
