#include "tools/report/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "security/connection_probe.h"
#include "security/credentials.h"
#include "wire/status_codec.h"

namespace torchps {
namespace {

constexpr char kNoTorchpsServer[] = "answers, but is no torchps server";

// As FromGrpcStatus, but in words for the command's user. gRPC tells a failed connection as
// a chain of causes; the last one is the system's own word.
absl::Status InWords(const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpcStatus(grpc_status);
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return absl::FailedPreconditionError(kNoTorchpsServer);
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

constexpr absl::Duration kProbeTimeout = absl::Milliseconds(500);

std::chrono::system_clock::time_point After(absl::Duration timeout) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
}

class GrpcClusterClient final : public ClusterClient {
 public:
  GrpcClusterClient(std::vector<std::string> addresses,
                    std::shared_ptr<CertificateFiles> certificates)
      : addresses_(std::move(addresses)), certificates_(std::move(certificates)) {
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
          grpc::CreateCustomChannel(address, ChannelCredentialsFor(certificates_), arguments));
    }
  }

  const std::vector<std::string>& addresses() const override { return addresses_; }

  absl::StatusOr<JobStatus> GetJobStatus(bool wait_until_done, absl::Duration timeout) override {
    // Waiting for a server that is not up yet must not become waiting for one that never answers.
    if (wait_until_done) {
      if (absl::Status refused = Refusal(0); !refused.ok()) return refused;
    }
    grpc::ClientContext context;
    context.set_deadline(After(timeout));
    context.set_wait_for_ready(wait_until_done);
    JobStatusRequest request;
    request.set_wait_until_done(wait_until_done);
    JobStatus reply;
    const absl::Status status = Explained(
        0, Coordinator::NewStub(channels_.front())->GetJobStatus(&context, request, &reply));
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
    if (!status.ok()) return Explained(0, status);
    return reply;
  }

  absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration timeout) override {
    grpc::ClientContext context;
    context.set_deadline(After(timeout));
    ServerStatus reply;
    const absl::Status status =
        Explained(server, ParameterService::NewStub(channels_[server])
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
        Explained(server, ParameterService::NewStub(channel)->Shutdown(&context, request, &reply));
    if (!status.ok()) return status;
    if (channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY &&
        !channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline)) {
      return absl::DeadlineExceededError("agreed to stop, but is still there");
    }
    return absl::OkStatus();
  }

 private:
  // As InWords, and what keeps the two sides apart if it is more than an absent server.
  absl::Status Explained(int server, const grpc::Status& grpc_status) const {
    const absl::Status status = InWords(grpc_status);
    if (status.code() != absl::StatusCode::kUnavailable) return status;
    const absl::Status refused = Refusal(server);
    return refused.ok() ? status : refused;
  }

  absl::Status Refusal(int server) const {
    const ProbeResult probe = ProbeServer(addresses_[server], certificates_.get(), kProbeTimeout);
    switch (probe.kind) {
      case ProbeResult::kRefused:
        return absl::UnauthenticatedError(probe.reason);
      case ProbeResult::kForeign:
        return absl::FailedPreconditionError(kNoTorchpsServer);
      default:
        return absl::OkStatus();
    }
  }

  const std::vector<std::string> addresses_;
  const std::shared_ptr<CertificateFiles> certificates_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace

std::unique_ptr<ClusterClient> ConnectToCluster(std::vector<std::string> addresses,
                                                std::shared_ptr<CertificateFiles> certificates) {
  return std::make_unique<GrpcClusterClient>(std::move(addresses), std::move(certificates));
}

FlagSpec CertificatesFlag() {
  return {
      "certs", "DIR",
      "Speaks TLS: the directory that 'psctl certs' made, or ca.pem, cert.pem and key.pem of an "
      "operator."};
}

absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(const FlagValues& flags) {
  return OpenCertificates(flags.Get("certs"), Role::kOperator, [](const std::string&) {});
}

absl::StatusOr<std::unique_ptr<ClusterClient>> ConnectByFlags(const FlagValues& flags,
                                                              absl::string_view command) {
  absl::StatusOr<std::vector<std::string>> servers = ServersFlag(flags, command);
  if (!servers.ok()) return servers.status();
  absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates = OpenCertificates(flags);
  if (!certificates.ok()) return certificates.status();
  return ConnectToCluster(*std::move(servers), *std::move(certificates));
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
