// push_apply, pull and push_pull: torchps's client against ps_server. No other file here uses
// ParameterClient.
//
//   push_apply  pushes a gradient that each server applies on arrival
//   pull        pulls the values into the flat vector
//   push_pull   push_apply, then pull

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/data_plane/numbers.h"
#include "bench/data_plane/operation.h"
#include "google/protobuf/text_format.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/client/parameter_client.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/cpu/aligned_array.h"
#include "torchps/common/model_layout.h"
#include "torchps/common/stop_latch.h"
#include "torchps/job/job_spec.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/security/credentials.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/push_segments.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr uint64_t kJobId = 1;

// Allowance for headers, as a part of the float32 bytes. Headers are a significant part of small
// messages.
constexpr double kHeadersShare = 0.1;

// Returns the maximum wire bytes per float32 byte for an encoding, including headers.
double MostOfFloat32(const std::string& encoding) {
  if (encoding == "float32") return 1 + kHeadersShare;
  if (encoding == "int8") return 0.25 + kHeadersShare;
  if (encoding == "top_k") return 0.05 + kHeadersShare;
  return 0.5 + kHeadersShare;
}

EncodingSpec::Kind GetKind(const std::string& encoding) {
  if (encoding == "bfloat16") return EncodingSpec::BFLOAT16;
  if (encoding == "int8") return EncodingSpec::INT8;
  if (encoding == "top_k") return EncodingSpec::TOP_K;
  return EncodingSpec::FLOAT32;
}

absl::StatusOr<JobSpec> GetJob(const Scenario& scenario) {
  JobSpec job;
  if (!google::protobuf::TextFormat::ParseFromString(scenario.optimizer, job.mutable_optimizer())) {
    return absl::InvalidArgumentError("--optimizer is not an OptimizerSpec in text format");
  }
  job.set_name("bench");
  job.set_workers(scenario.workers);
  job.mutable_model()->set_name("bench");
  // Small enough that values stay finite in long runs.
  job.mutable_optimizer()->set_learning_rate(1e-6);
  // Applies each push separately, at the same rate for any number of samples.
  job.mutable_training()->set_balance(TrainingSpec::EQUAL);
  job.mutable_training()->set_global_batch(false);
  job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  job.mutable_consistency()->set_staleness_bound(-1);
  job.mutable_consistency()->set_prefetch(false);
  // A slot may be idle for long while other cases run.
  job.mutable_membership()->set_lease_seconds(3600);
  const EncodingSpec::Kind kind = GetKind(scenario.encoding);
  job.mutable_wire()->mutable_push()->set_kind(kind);
  job.mutable_wire()->mutable_pull()->set_kind(kind == EncodingSpec::TOP_K ? EncodingSpec::FLOAT32
                                                                           : kind);
  job.mutable_wire()->set_shared_memory(scenario.transport == "shm");
  job.mutable_durability()->set_level(scenario.durability == "log" ? DurabilitySpec::LOG
                                                                   : DurabilitySpec::NONE);
  return NormalizeJobSpec(std::move(job));
}

// A worker's slot with connections to the servers.
class TorchpsStage final : public Stage {
 public:
  absl::Status Join(const Scenario& scenario, const Peers& peers);

  absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view name) override;

  absl::Status Push() {
    return client_->Push(++step_, /*weight=*/1, gradient_, /*averaged=*/{}).status();
  }
  absl::Status Pull() {
    return client_->Pull(step_, /*read_only=*/false, absl::MakeSpan(values_)).status();
  }

 private:
  // Allocates the gradient, in the shared segment for "shm".
  absl::Status MakeGradient(const Scenario& scenario, const ModelLayout& layout);
  absl::StatusOr<ServerStatus> StatusOfServer0();
  // FAILED_PRECONDITION: a push uses more wire bytes than expected for this encoding and transport.
  absl::Status CheckBytesOnTheWire(const Scenario& scenario);

  SteadyClock clock_;
  StopLatch stop_;
  std::unique_ptr<PushSegment> segment_;
  AlignedArray<float> own_gradient_;
  absl::Span<float> gradient_;
  std::unique_ptr<ParameterClient> client_;
  std::vector<float> values_;
  std::unique_ptr<ParameterService::Stub> stub_;  // to server 0, on the client's channel
  Step step_ = 0;
};

absl::Status TorchpsStage::Join(const Scenario& scenario, const Peers& peers) {
  ParameterClient::Options options;
  const absl::StatusOr<JobSpec> job = GetJob(scenario);
  if (!job.ok()) return job.status();
  options.job = *job;
  Segment all;
  all.name = "all";
  all.shape = {static_cast<int64_t>(scenario.bytes / sizeof(float))};
  const absl::StatusOr<ModelLayout> layout = ModelLayout::Create({all});
  if (!layout.ok()) return layout.status();
  options.layout = *layout;
  const absl::StatusOr<BlockMap> map =
      BlockMap::Create(*layout, job->wire().block_bytes(), scenario.servers);
  if (!map.ok()) return map.status();
  options.block_map = *map;
  const auto certificates = OpenCertificates(scenario.transport == "tls" ? scenario.certs : "",
                                             Role::kWorker, [](const std::string&) {});
  if (!certificates.ok()) return certificates.status();
  for (const std::string& address : peers.addresses) {
    options.servers.push_back(
        ConnectToServer(static_cast<int>(options.servers.size()), address, *certificates));
  }
  if (absl::Status made = MakeGradient(scenario, *layout); !made.ok()) return made;
  options.push_segment = segment_.get();
  stub_ = ParameterService::NewStub(options.servers.front().channel);
  options.job_id = kJobId;
  options.slot = peers.slot;
  options.incarnation = 1;
  options.clock = &clock_;
  options.stop = &stop_;
  absl::StatusOr<std::unique_ptr<ParameterClient>> client =
      ParameterClient::Create(std::move(options));
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  if (const auto greeted = client_->Hello(); !greeted.ok()) return greeted.status();
  if (peers.slot > 0) return absl::OkStatus();
  if (absl::Status brought = client_->Initialize(gradient_); !brought.ok()) return brought;
  return CheckBytesOnTheWire(scenario);
}

absl::Status TorchpsStage::MakeGradient(const Scenario& scenario, const ModelLayout& layout) {
  if (scenario.transport == "shm") {
    absl::StatusOr<std::unique_ptr<PushSegment>> segment = PushSegment::Create(layout);
    if (!segment.ok()) return segment.status();
    segment_ = *std::move(segment);
    gradient_ = segment_->buffer(0);
  } else {
    // Aligned like torch tensors.
    own_gradient_ = AlignedArray<float>(layout.size());
    gradient_ = absl::MakeSpan(own_gradient_);
  }
  const std::vector<float> numbers = SomeFloats(layout.size());
  std::copy(numbers.begin(), numbers.end(), gradient_.begin());
  return absl::OkStatus();
}

absl::StatusOr<ServerStatus> TorchpsStage::StatusOfServer0() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  ServerStatus status;
  const absl::Status asked =
      FromGrpcStatus(stub_->GetServerStatus(&context, ServerStatusRequest(), &status));
  if (!asked.ok()) return asked;
  return status;
}

absl::Status TorchpsStage::CheckBytesOnTheWire(const Scenario& scenario) {
  const absl::StatusOr<ServerStatus> before = StatusOfServer0();
  if (!before.ok()) return before.status();
  if (absl::Status pushed = Push(); !pushed.ok()) return pushed;
  const absl::StatusOr<ServerStatus> after = StatusOfServer0();
  if (!after.ok()) return after.status();
  const auto bytes = static_cast<double>(after->bytes_in() - before->bytes_in());
  const double share = bytes * scenario.servers / static_cast<double>(scenario.bytes);
  const double most =
      scenario.transport == "shm" ? kHeadersShare : MostOfFloat32(scenario.encoding);
  if (share <= most) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "a push by %s as %s put %.2f of its float32 bytes on the wire; expected at most %.2f",
      scenario.transport, scenario.encoding, share, most));
}

class TorchpsOperation final : public Operation {
 public:
  using Method = absl::Status (TorchpsStage::*)();

  TorchpsOperation(TorchpsStage* stage, std::vector<Method> methods)
      : stage_(stage), methods_(std::move(methods)) {}

  absl::Status Run() override {
    for (const Method method : methods_) {
      if (absl::Status status = (stage_->*method)(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  TorchpsStage* const stage_;
  const std::vector<Method> methods_;
};

absl::StatusOr<std::unique_ptr<Operation>> TorchpsStage::Prepare(absl::string_view name) {
  std::vector<TorchpsOperation::Method> methods;
  if (name != "pull") methods.push_back(&TorchpsStage::Push);
  if (name != "push_apply") {
    values_.resize(gradient_.size());
    methods.push_back(&TorchpsStage::Pull);
  }
  return std::make_unique<TorchpsOperation>(this, std::move(methods));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeTorchpsStage(const Scenario& scenario,
                                                        const Peers& peers) {
  PrepareGrpcProcess();
  auto stage = std::make_unique<TorchpsStage>();
  if (absl::Status joined = stage->Join(scenario, peers); !joined.ok()) return joined;
  return stage;
}

}  // namespace torchps
