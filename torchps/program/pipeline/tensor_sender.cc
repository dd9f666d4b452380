#include "torchps/program/pipeline/tensor_sender.h"

#include <cstdint>
#include <utility>

#include "absl/time/clock.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/async_unary_call.h"
#include "grpcpp/support/byte_buffer.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr char kDeliver[] = "/torchps.Replica/Deliver";
constexpr uint32_t kPayloadTag = TensorMessage::kPayloadFieldNumber << 3 | 2;

}  // namespace

struct TensorSender::Call {
  int to = 0;
  TensorMessage::Kind kind = TensorMessage::KIND_UNSPECIFIED;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer reply;
  grpc::Status status;
};

grpc::ByteBuffer EncodeParcel(const TensorMessage& parcel, const torch::Tensor& tensor) {
  std::string header = parcel.SerializeAsString();
  const size_t bytes = tensor.defined() ? tensor.nbytes() : 0;
  if (bytes == 0) {
    const grpc::Slice slice(header);
    return grpc::ByteBuffer(&slice, 1);
  }
  header.push_back(static_cast<char>(kPayloadTag));
  for (size_t rest = bytes;; rest >>= 7) {
    if (rest < 0x80) {
      header.push_back(static_cast<char>(rest));
      break;
    }
    header.push_back(static_cast<char>(rest | 0x80));
  }
  const grpc::Slice slices[] = {
      grpc::Slice(header),
      grpc::Slice(
          tensor.data_ptr(), bytes, [](void* held) { delete static_cast<torch::Tensor*>(held); },
          new torch::Tensor(tensor))};
  return grpc::ByteBuffer(slices, 2);
}

TensorSender::TensorSender(const std::vector<std::shared_ptr<grpc::Channel>>& channels,
                           OnLost on_lost)
    : on_lost_(std::move(on_lost)) {
  for (const std::shared_ptr<grpc::Channel>& channel : channels) {
    stubs_.push_back(channel == nullptr ? nullptr
                                        : std::make_unique<grpc::GenericStub>(
                                              std::shared_ptr<grpc::ChannelInterface>(channel)));
  }
  thread_ = std::thread([this] { Run(); });
}

TensorSender::~TensorSender() {
  Drain();
  queue_.Shutdown();
  thread_.join();
}

void TensorSender::Drain() {
  const MutexLock lock(&mutex_);
  while (!calls_.empty()) changed_.Wait(&mutex_);
}

void TensorSender::Send(int to, const TensorMessage& parcel, const torch::Tensor& tensor,
                        absl::Duration timeout) {
  auto* const call = new Call();
  call->to = to;
  call->kind = parcel.kind();
  call->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::ByteBuffer bytes = EncodeParcel(parcel, tensor);
  const MutexLock lock(&mutex_);
  if (cancelled_ && call->kind != TensorMessage::FAREWELL) {
    delete call;
    return;
  }
  calls_.insert(call);
  call->reader = stubs_[to]->PrepareUnaryCall(&call->context, kDeliver, bytes, &queue_);
  call->reader->StartCall();
  call->reader->Finish(&call->reply, &call->status, call);
}

void TensorSender::Cancel() {
  const MutexLock lock(&mutex_);
  cancelled_ = true;
  for (Call* const call : calls_) {
    if (call->kind != TensorMessage::FAREWELL) call->context.TryCancel();
  }
}

void TensorSender::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    const std::unique_ptr<Call> call(static_cast<Call*>(tag));
    bool is_told = false;
    {
      const MutexLock lock(&mutex_);
      is_told = !cancelled_ && call->kind != TensorMessage::FAREWELL;
    }
    const absl::Status status = FromGrpcStatus(call->status);
    if (!status.ok() && is_told) on_lost_(call->to, call->kind, status);
    const MutexLock lock(&mutex_);
    calls_.erase(call.get());
    changed_.SignalAll();
  }
}

}  // namespace torchps
