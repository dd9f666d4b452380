#include "torchps/tools/report/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "torchps/common/process/command_line.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/security/connection_probe.h"
#include "torchps/security/credentials.h"
#include "torchps/tools/report/report_text.h"
#include "torchps/tools/run_folder/run_list.h"
#include "torchps/transport/grpc_process.h"
#include "torchps/transport/server_address.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

bool HasJob(const ServerAnswer& answer) {
  return answer.status.ok() && answer.status->job_id() != 0;
}

// Returns the complete list as a flag, or advice if the addresses are unknown.
std::string WholeList(const absl::StatusOr<JobStatus>& job, int count) {
  std::vector<std::string> addresses;
  if (job.ok()) {
    for (const ServerAddress& place : job->server()) {
      if (!place.address().empty()) addresses.push_back(place.address());
    }
  }
  if (static_cast<int>(addresses.size()) != count) {
    return "list all servers, in the order that the workers use";
  }
  return absl::StrCat("list all servers, in order: --servers=", absl::StrJoin(addresses, ","));
}

}  // namespace

std::string ServerListText(const absl::StatusOr<JobStatus>& job,
                           const std::vector<ServerAnswer>& servers) {
  int count = job.ok() ? job->server_size() : 0;
  std::set<int> named;
  std::string elsewhere;
  for (int i = 0; i < static_cast<int>(servers.size()); ++i) {
    const ServerAnswer& answer = servers[static_cast<size_t>(i)];
    // Servers that are down or do not host a job count as correctly placed.
    const int index = HasJob(answer) ? answer.status->server_index() : i;
    named.insert(index);
    if (HasJob(answer)) count = std::max(count, answer.status->server_count());
    if (index != i && elsewhere.empty()) {
      elsewhere = absl::StrCat(answer.address, " is server ", index,
                               " of the job, but --servers lists it as server ", i);
    }
  }
  std::vector<int> lacking;
  for (int i = 0; i < count; ++i) {
    if (named.count(i) == 0) lacking.push_back(i);
  }
  if (lacking.empty() && elsewhere.empty()) return "";
  const std::string what =
      lacking.empty() ? elsewhere
                      : absl::StrCat("--servers lacks server", lacking.size() == 1 ? " " : "s ",
                                     absl::StrJoin(lacking, ", "), " of the job's ", count);
  return absl::StrCat(what, "; ", WholeList(job, count), "\n");
}

bool FirstIsAnother(const std::vector<ServerAnswer>& servers) {
  return !servers.empty() && HasJob(servers[0]) && servers[0].status->server_index() != 0;
}

namespace {

constexpr char kNoTorchpsServer[] = "answers, but is not a torchps server";

// As FromGrpcStatus, but with messages for psctl's user. gRPC reports a failed connection as a
// chain of causes; the last cause is the system's error.
absl::Status InWords(const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpcStatus(grpc_status);
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
      return absl::FailedPreconditionError(kNoTorchpsServer);
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(
          "no answer in time; is its machine overloaded, or does a firewall drop packets?");
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
// While the client retries a TLS handshake, it looks for the reason this often.
constexpr absl::Duration kProbeInterval = absl::Seconds(1);
// Time in which psctl's commands retry a TLS handshake.
constexpr absl::Duration kHandshakePatience = absl::Seconds(10);

std::chrono::system_clock::time_point After(absl::Duration timeout) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
}

class GrpcClusterClient final : public ClusterClient {
 public:
  GrpcClusterClient(std::vector<std::string> addresses,
                    std::shared_ptr<CertificateFiles> certificates,
                    absl::Duration handshake_patience)
      : addresses_(std::move(addresses)),
        certificates_(std::move(certificates)),
        handshake_patience_(handshake_patience) {
    servers_.resize(addresses_.size());
    for (size_t i = 0; i < addresses_.size(); ++i) FindAgain(static_cast<int>(i));
  }

  const std::vector<std::string>& addresses() const override { return addresses_; }

  absl::StatusOr<JobStatus> GetJobStatus(bool wait_until_done, absl::Duration timeout) override {
    // The call waits until the server is up, so this first checks for a server that would never
    // answer.
    if (wait_until_done) {
      const absl::Status fault = FindFault(0);
      if (!fault.ok() && !absl::IsDeadlineExceeded(fault)) return fault;
    }
    FindAgain(0);
    JobStatusRequest request;
    request.set_wait_until_done(wait_until_done);
    JobStatus reply;
    const auto stub = Coordinator::NewStub(servers_.front().channel);
    const absl::Status status = Explained(0, Call(0, timeout, [&](grpc::ClientContext* context) {
                                            context->set_wait_for_ready(wait_until_done);
                                            return stub->GetJobStatus(context, request, &reply);
                                          }));
    if (!status.ok()) return status;
    registered_.assign(reply.server().begin(), reply.server().end());
    return reply;
  }

  absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration timeout) override {
    CheckpointStatus reply;
    FindAgain(0);
    const std::shared_ptr<grpc::Channel> channel = servers_.front().channel;
    const auto stub = Coordinator::NewStub(channel);
    const grpc::Status status = Call(0, timeout, [&](grpc::ClientContext* context) {
      return stub->TakeCheckpoint(context, TakeCheckpointRequest(), &reply);
    });
    // If the channel is ready, the error is the server's answer.
    if (!status.ok() && channel->GetState(false) == GRPC_CHANNEL_READY) {
      return FromGrpcStatus(status);
    }
    if (status.ok()) return reply;
    const absl::Status away = Explained(0, status);
    return absl::Status(away.code(), NoAnswerText(0, addresses_[0], away));
  }

  absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration timeout) override {
    FindAgain(server);
    ServerStatus reply;
    const auto stub = ParameterService::NewStub(servers_[server].channel);
    const grpc::Status answer = Call(server, timeout, [&](grpc::ClientContext* context) {
      return stub->GetServerStatus(context, ServerStatusRequest(), &reply);
    });
    if (answer.ok()) return reply;
    const absl::Status status = Explained(server, answer);
    // The server may have moved; tries the address that the coordinator knows.
    const bool away = answer.error_code() == grpc::StatusCode::UNAVAILABLE &&
                      ExitCodeFor(status) == ExitCode::kUnreachable;
    if (!away || !GoWhereRegistered(server)) return status;
    return GetServerStatus(server, timeout);
  }

  absl::Status Shutdown(int server, absl::string_view reason, absl::Duration timeout) override {
    const auto deadline = After(timeout);
    ShutdownRequest request;
    request.set_reason(std::string(reason));
    ShutdownReply reply;
    FindAgain(server);
    const std::shared_ptr<grpc::Channel> channel = servers_[server].channel;
    const auto stub = ParameterService::NewStub(channel);
    const absl::Status status =
        Explained(server, Call(server, timeout, [&](grpc::ClientContext* context) {
                    return stub->Shutdown(context, request, &reply);
                  }));
    if (!status.ok()) return status;
    if (channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY &&
        !channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline)) {
      return absl::DeadlineExceededError("agreed to stop, but is still running");
    }
    return absl::OkStatus();
  }

 private:
  // Makes a call with the deadline `timeout`, and retries as ConnectToCluster() promises.
  grpc::Status Call(int server, absl::Duration timeout,
                    absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call) {
    const auto give_up_at = After(handshake_patience_);
    ServerLink& link = servers_[server];
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(After(timeout));
      grpc::Status status = call(&context);
      if (status.ok()) link.gave_up = false;
      const bool may_retry = handshake_patience_ > absl::ZeroDuration() && !link.gave_up;
      if (status.ok() || !may_retry || !EndedInHandshake(server, status)) return status;
      if (std::chrono::system_clock::now() >= give_up_at) {
        link.gave_up = true;
        return status;
      }
      link.channel->WaitForConnected(std::min(After(kProbeInterval), give_up_at));
    }
  }

  // Returns true if the call's TLS handshake did not finish, and another one may.
  bool EndedInHandshake(int server, const grpc::Status& status) const {
    if (certificates_ == nullptr || !EndedUnconnected(server, status)) return false;
    const ProbeResult::Kind found = Probe(server).kind;
    return found == ProbeResult::kSilent || found == ProbeResult::kHttp2;
  }

  ProbeResult Probe(int server) const {
    return ProbeServer(servers_[server].address, certificates_.get(), kProbeTimeout);
  }

  // Returns false if the status is the server's answer.
  bool EndedUnconnected(int server, const grpc::Status& status) const {
    return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
           servers_[server].channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY;
  }

  // Returns InWords(), or the reason for a failed connection.
  absl::Status Explained(int server, const grpc::Status& grpc_status) const {
    const absl::Status status = InWords(grpc_status);
    if (status.code() != absl::StatusCode::kUnavailable) return status;
    if (!EndedUnconnected(server, grpc_status)) return FromGrpcStatus(grpc_status);
    const absl::Status fault = FindFault(server);
    return fault.ok() ? status : fault;
  }

  // Connects to a server and returns the reason why calls fail. DEADLINE_EXCEEDED: the server
  // accepts the connection, but the TLS handshake does not finish. OK: the reason is unknown.
  absl::Status FindFault(int server) const {
    if (servers_[server].address.empty()) {
      return absl::UnavailableError("no server has written this file yet");
    }
    const ProbeResult probe = Probe(server);
    switch (probe.kind) {
      case ProbeResult::kRefused:
        return absl::UnauthenticatedError(probe.reason);
      case ProbeResult::kForeign:
        return absl::FailedPreconditionError(kNoTorchpsServer);
      case ProbeResult::kSilent:
        if (certificates_ == nullptr) return absl::OkStatus();
        return absl::DeadlineExceededError(
            "no TLS handshake finished in time; the server is overloaded, clients hold too many "
            "unfinished handshakes, or this is no torchps server");
      default:
        return absl::OkStatus();
    }
  }

  // Connection to one server.
  struct ServerLink {
    std::string address;  // HOST:PORT; empty if the server's file does not exist yet
    std::shared_ptr<grpc::Channel> channel;
    bool is_registered = false;  // address from the coordinator
    bool gave_up = false;        // the last retries of a TLS handshake failed
  };

  // If the server's address was given as a file, rereads that file.
  void FindAgain(int server) {
    ServerLink& link = servers_[server];
    const absl::StatusOr<AddressSource> source = AddressSource::Parse(addresses_[server]);
    if (link.channel != nullptr && (link.is_registered || !source.ok() || !source->is_file()))
      return;
    std::string address = addresses_[server];
    if (source.ok()) address = source->Find().value_or("");
    if (link.channel == nullptr || address != link.address) GoTo(server, address);
  }

  // Switches to the address that the coordinator knows. Returns false if it is unknown or not new.
  bool GoWhereRegistered(int server) {
    if (server >= static_cast<int>(registered_.size())) return false;
    const std::string& address = registered_[server].address();
    if (servers_[server].address == address || !CheckServerAddress(address).ok()) return false;
    GoTo(server, address);
    servers_[server].is_registered = true;
    return true;
  }

  void GoTo(int server, const std::string& address) {
    grpc::ChannelArguments arguments;
    FindAgainSoon(&arguments);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // The status of a large job, with slots and blocks, exceeds gRPC's default of 4 MiB.
    arguments.SetMaxReceiveMessageSize(64 << 20);
    servers_[server].address = address;
    servers_[server].channel = grpc::CreateCustomChannel(
        ChannelTarget(address), ChannelCredentialsFor(certificates_), arguments);
    servers_[server].is_registered = false;
  }

  const std::vector<std::string> addresses_;
  const std::shared_ptr<CertificateFiles> certificates_;
  const absl::Duration handshake_patience_;
  std::vector<ServerLink> servers_;
  // Server addresses in the coordinator's last answer.
  std::vector<ServerAddress> registered_;
};

}  // namespace

std::unique_ptr<ClusterClient> ConnectToCluster(std::vector<std::string> addresses,
                                                std::shared_ptr<CertificateFiles> certificates,
                                                absl::Duration handshake_patience) {
  return std::make_unique<GrpcClusterClient>(std::move(addresses), std::move(certificates),
                                             handshake_patience);
}

std::vector<FlagSpec> ClusterFlags() {
  return {{"servers", "HOST:PORT,...",
           "All servers of the cluster, in order. Default: the servers of --run."},
          RunFlag(),
          CertificatesFlag()};
}

FlagSpec CertificatesFlag() {
  return {"certs", "DIR",
          "Uses TLS: the directory that 'psctl certs' made, or one with an operator's ca.pem, "
          "cert.pem and key.pem."};
}

absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(const FlagValues& flags) {
  return OpenCertificates(flags.Get("certs"), Role::kOperator, [](const std::string&) {});
}

absl::StatusOr<std::unique_ptr<ClusterClient>> ConnectByFlags(const FlagValues& flags,
                                                              absl::string_view command) {
  absl::StatusOr<std::vector<std::string>> servers = std::vector<std::string>();
  std::string certs = flags.Get("certs");
  if (!flags.Has("servers")) {
    absl::StatusOr<ListedRun> run = FindRunningRun(flags.Get("run"));
    if (!run.ok()) return run.status();
    servers = std::move(run->record.servers);
    if (certs.empty()) certs = std::move(run->record.certs);
  } else if (flags.Has("run")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'psctl ", command, "' takes either --servers or --run; both name a cluster"));
  } else {
    servers = ParseAddresses(flags.Get("servers"));
  }
  if (!servers.ok()) return servers.status();
  absl::StatusOr<std::shared_ptr<CertificateFiles>> certificates =
      OpenCertificates(certs, Role::kOperator, [](const std::string&) {});
  if (!certificates.ok()) return certificates.status();
  return ConnectToCluster(*std::move(servers), *std::move(certificates), kHandshakePatience);
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
    if (const absl::Status valid = AddressSource::Parse(part).status(); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--servers: ", valid.message()));
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
