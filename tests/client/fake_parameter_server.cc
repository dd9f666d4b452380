#include "tests/client/fake_parameter_server.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace torchps {
namespace {

using Fault = FakeParameterServer::Fault;

std::optional<Fault> TakeFault(std::deque<Fault>& faults) {
  if (faults.empty()) return std::nullopt;
  Fault fault = std::move(faults.front());
  faults.pop_front();
  return fault;
}

grpc::Status ToStatus(const Fault& fault) { return {fault.code, fault.message}; }

}  // namespace

FakeParameterServer::FakeParameterServer(int index, const BlockMap& block_map)
    : index_(index), block_map_(block_map) {
  hello_reply_.set_server_incarnation(1000 + index);
  hello_reply_.set_initialized(true);
  grpc::ServerBuilder builder;
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeParameterServer::~FakeParameterServer() { server_->Shutdown(); }

ServerEndpoint FakeParameterServer::endpoint() {
  return {index_, /*address=*/"", server_->InProcessChannel(grpc::ChannelArguments())};
}

void FakeParameterServer::AddHelloFault(Fault fault) {
  MutexLock lock(&mutex_);
  hello_faults_.push_back(std::move(fault));
}

void FakeParameterServer::AddPushFault(Fault fault) {
  MutexLock lock(&mutex_);
  push_faults_.push_back(std::move(fault));
}

void FakeParameterServer::AddPullFault(Fault fault) {
  MutexLock lock(&mutex_);
  pull_faults_.push_back(std::move(fault));
}

void FakeParameterServer::AddLeaveFault(Fault fault) {
  MutexLock lock(&mutex_);
  leave_faults_.push_back(std::move(fault));
}

void FakeParameterServer::AddRenewFault(Fault fault) {
  MutexLock lock(&mutex_);
  renew_faults_.push_back(std::move(fault));
}

void FakeParameterServer::SetHelloReply(const HelloReply& reply) {
  MutexLock lock(&mutex_);
  hello_reply_ = reply;
}

void FakeParameterServer::CutNextFrame(int elements) {
  MutexLock lock(&mutex_);
  cut_elements_ = elements;
}

void FakeParameterServer::SetVerdict(Verdict verdict, int64_t lag) {
  MutexLock lock(&mutex_);
  verdict_ = verdict;
  lag_ = lag;
}

std::vector<FakeParameterServer::SeenPush> FakeParameterServer::pushes() {
  MutexLock lock(&mutex_);
  return pushes_;
}

std::vector<PullRequest> FakeParameterServer::pulls() {
  MutexLock lock(&mutex_);
  return pulls_;
}

std::vector<HelloRequest> FakeParameterServer::hellos() {
  MutexLock lock(&mutex_);
  return hellos_;
}

int FakeParameterServer::leaves() {
  MutexLock lock(&mutex_);
  return leaves_;
}

int FakeParameterServer::renewals() {
  MutexLock lock(&mutex_);
  return renewals_;
}

grpc::Status FakeParameterServer::Hello(grpc::ServerContext*, const HelloRequest* request,
                                        HelloReply* reply) {
  MutexLock lock(&mutex_);
  hellos_.push_back(*request);
  if (const auto fault = TakeFault(hello_faults_)) return ToStatus(*fault);
  *reply = hello_reply_;
  return grpc::Status::OK;
}

grpc::Status FakeParameterServer::Push(grpc::ServerContext*, grpc::ServerReader<PushFrame>* reader,
                                       PushReply* reply) {
  std::optional<Fault> fault;
  {
    MutexLock lock(&mutex_);
    fault = TakeFault(push_faults_);
  }
  SeenPush seen;
  PushFrame frame;
  while (!(fault && static_cast<int>(seen.frames.size()) == fault->after_frames) &&
         reader->Read(&frame)) {
    seen.frames.push_back(frame);
  }
  seen.failed = fault.has_value();
  MutexLock lock(&mutex_);
  for (const PushFrame& pushed : seen.frames) {
    for (uint32_t i = 0; i < std::max(pushed.shared_blocks(), 1u); ++i) {
      BlockVerdict& verdict = *reply->add_block();
      verdict.set_block(pushed.block() + i * block_map_.servers());
      verdict.set_verdict(verdict_);
      verdict.set_lag(lag_);
    }
  }
  pushes_.push_back(std::move(seen));
  return fault ? ToStatus(*fault) : grpc::Status::OK;
}

void FakeParameterServer::SkipUnchanged() {
  MutexLock lock(&mutex_);
  skips_unchanged_ = true;
}

void FakeParameterServer::HoldPulls(bool held) {
  MutexLock lock(&mutex_);
  pulls_held_ = held;
  held_changed_.SignalAll();
}

grpc::Status FakeParameterServer::Pull(grpc::ServerContext* context, const PullRequest* request,
                                       grpc::ServerWriter<PullFrame>* writer) {
  MutexLock lock(&mutex_);
  pulls_.push_back(*request);
  while (pulls_held_) {
    // gRPC's synchronous server does not notify about cancelled calls.
    held_changed_.WaitFor(&mutex_, absl::Milliseconds(5));
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
  }
  const std::optional<Fault> fault = TakeFault(pull_faults_);
  if (request->shared_memory() && !fault) {
    PullFrame frame;
    frame.set_shared(true);
    frame.set_min_clock(7 + index_);
    writer->Write(frame);
    return grpc::Status::OK;
  }
  const std::vector<BlockId>& owned = block_map_.owned_by(index_);
  for (int sent = 0; sent < static_cast<int>(owned.size()); ++sent) {
    if (fault && sent == fault->after_frames) break;
    const BlockId id = owned[sent];
    const BlockRange& block = block_map_.blocks()[id];
    const std::vector<float> values(block.length - std::exchange(cut_elements_, 0),
                                    static_cast<float>(id));
    PullFrame frame;
    frame.set_block(id);
    frame.set_version(100 + id);
    frame.set_block_count(static_cast<uint32_t>(owned.size()));
    frame.set_min_clock(7 + index_);
    frame.set_parked_us(1000 * (1 + index_));
    if (skips_unchanged_ && sent < request->have_version_size() &&
        request->have_version(sent) == frame.version()) {
      frame.set_unchanged(true);
    } else {
      frame.set_payload(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
    }
    writer->Write(frame);
  }
  return fault ? ToStatus(*fault) : grpc::Status::OK;
}

void FakeParameterServer::SetRenewReply(const RenewReply& reply) {
  MutexLock lock(&mutex_);
  renew_reply_ = reply;
}

grpc::Status FakeParameterServer::Renew(grpc::ServerContext*, const RenewRequest*,
                                        RenewReply* reply) {
  MutexLock lock(&mutex_);
  ++renewals_;
  if (const auto fault = TakeFault(renew_faults_)) return ToStatus(*fault);
  *reply = renew_reply_;
  return grpc::Status::OK;
}

grpc::Status FakeParameterServer::Leave(grpc::ServerContext*, const LeaveRequest*, LeaveReply*) {
  MutexLock lock(&mutex_);
  ++leaves_;
  if (const auto fault = TakeFault(leave_faults_)) return ToStatus(*fault);
  return grpc::Status::OK;
}

}  // namespace torchps
