#include "tools/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "proto/status_codec.h"

namespace torchps {
namespace {

// As FromGrpcStatus, but in words for whoever typed the command. gRPC tells a failed connection as
// a chain of causes; the last one is the system's own word.
absl::Status InWords(const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpcStatus(grpc_status);
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return absl::FailedPreconditionError("answers, but is no torchps server");
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError("no answer");
    case absl::StatusCode::kUnavailable: {
      const size_t last = status.message().rfind(": ");
      if (last == absl::string_view::npos) return status;
      return absl::UnavailableError(absl::AsciiStrToLower(status.message().substr(last + 2)));
    }
    default:
      return status;
  }
}

std::chrono::system_clock::time_point After(absl::Duration timeout) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
}

class GrpcClusterClient final : public ClusterClient {
 public:
  explicit GrpcClusterClient(std::vector<std::string> addresses)
      : addresses_(std::move(addresses)) {
    for (const std::string& address : addresses_) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      // A server that comes up late is found soon.
      arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
      arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
      arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
      // A status with every slot and block of a large job is longer than gRPC's 4 MiB.
      arguments.SetMaxReceiveMessageSize(64 << 20);
      channels_.push_back(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    }
  }

  const std::vector<std::string>& addresses() const override { return addresses_; }

  absl::StatusOr<JobStatus> GetJobStatus(bool wait_until_done, absl::Duration timeout) override {
    grpc::ClientContext context;
    context.set_deadline(After(timeout));
    context.set_wait_for_ready(wait_until_done);
    JobStatusRequest request;
    request.set_wait_until_done(wait_until_done);
    JobStatus reply;
    const absl::Status status =
        InWords(Coordinator::NewStub(channels_.front())->GetJobStatus(&context, request, &reply));
    if (!status.ok()) return status;
    return reply;
  }

  absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration timeout) override {
    grpc::ClientContext context;
    context.set_deadline(After(timeout));
    CheckpointStatus reply;
    const grpc::Status status = Coordinator::NewStub(channels_.front())
                                    ->TakeCheckpoint(&context, TakeCheckpointRequest(), &reply);
    // That of another server, in whole words, comes from a server that is there.
    if (!status.ok() && channels_.front()->GetState(false) == GRPC_CHANNEL_READY) {
      return FromGrpcStatus(status);
    }
    if (!status.ok()) return InWords(status);
    return reply;
  }

  absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration timeout) override {
    grpc::ClientContext context;
    context.set_deadline(After(timeout));
    ServerStatus reply;
    const absl::Status status =
        InWords(ParameterService::NewStub(channels_[server])
                    ->GetServerStatus(&context, ServerStatusRequest(), &reply));
    if (!status.ok()) return status;
    return reply;
  }

  absl::Status Shutdown(int server, absl::string_view reason, absl::Duration timeout) override {
    const auto deadline = After(timeout);
    grpc::ClientContext context;
    context.set_deadline(deadline);
    ShutdownRequest request;
    request.set_reason(std::string(reason));
    ShutdownReply reply;
    const std::shared_ptr<grpc::Channel>& channel = channels_[server];
    const absl::Status status =
        InWords(ParameterService::NewStub(channel)->Shutdown(&context, request, &reply));
    if (!status.ok()) return status;
    if (channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY &&
        !channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline)) {
      return absl::DeadlineExceededError("agreed to stop, but is still there");
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<std::string> addresses_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace

std::unique_ptr<ClusterClient> ConnectToCluster(std::vector<std::string> addresses) {
  return std::make_unique<GrpcClusterClient>(std::move(addresses));
}

std::vector<ServerAnswer> AskAllServers(ClusterClient& cluster, absl::Duration timeout) {
  std::vector<ServerAnswer> answers;
  for (size_t i = 0; i < cluster.addresses().size(); ++i) {
    answers.push_back(
        {cluster.addresses()[i], cluster.GetServerStatus(static_cast<int>(i), timeout)});
  }
  return answers;
}

absl::StatusOr<std::vector<std::string>> ParseAddresses(absl::string_view text) {
  std::vector<std::string> addresses;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t colon = part.rfind(':');
    int port = 0;
    if (colon == absl::string_view::npos || colon == 0 ||
        !absl::SimpleAtoi(part.substr(colon + 1), &port) || port < 1 || port > 65535) {
      return absl::InvalidArgumentError(absl::StrCat("--servers: '", part, "' is no HOST:PORT"));
    }
    addresses.emplace_back(part);
  }
  return addresses;
}

absl::StatusOr<std::vector<std::string>> ServersFlag(const FlagValues& flags,
                                                     absl::string_view command) {
  if (!flags.Has("servers")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'psctl ", command, "' needs --servers=HOST:PORT,HOST:PORT"));
  }
  return ParseAddresses(flags.Get("servers"));
}

}  // namespace torchps
