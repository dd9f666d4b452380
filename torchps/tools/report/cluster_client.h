#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/security/certificate_files.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/report/report.h"

namespace torchps {

// Compares --servers with the answers of the job and its servers. Returns a line that names missing
// or misplaced servers, and the correct list if known. Returns "" if it finds no fault. Pure
// function.
//
//   --servers lacks server 1 of the job's 2; list all servers, in order:
//   --servers=alpha:7000,beta:7000
std::string ServerListText(const absl::StatusOr<JobStatus>& job,
                           const std::vector<ServerAnswer>& servers);

// Returns true if the first address in --servers is not server 0 of the job. Then this server's
// answer as coordinator is meaningless.
bool FirstIsAnother(const std::vector<ServerAnswer>& servers);

// psctl's requests to a running cluster. An interface, so that tests do not need a cluster. Calls
// block until the answer or the deadline. UNAVAILABLE: the server is down; the message holds the
// system's reason ("connection refused").
class ClusterClient {
 public:
  virtual ~ClusterClient() = default;

  virtual const std::vector<std::string>& addresses() const = 0;

  // Requests the job status from server 0. If `wait_until_done`, waits for the server to start
  // and then for the end of the job. DEADLINE_EXCEEDED: `timeout` passed.
  virtual absl::StatusOr<JobStatus> GetJobStatus(bool wait_until_done, absl::Duration timeout) = 0;

  // Asks server 0 to take a checkpoint. Returns when the checkpoint is complete.
  virtual absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration timeout) = 0;

  virtual absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration timeout) = 0;

  // Asks the server to stop and returns when the connection has closed. DEADLINE_EXCEEDED: the
  // server agreed but still ran after `timeout`.
  virtual absl::Status Shutdown(int server, absl::string_view reason, absl::Duration timeout) = 0;
};

// Returns a client that uses gRPC, with TLS if `certificates` (of an operator) are given. The
// client returns UNAUTHENTICATED if a certificate prevents a connection, and FAILED_PRECONDITION if
// the peer is not a torchps server. It rereads an address file for each call. If a server is
// unavailable, it tries the address in the coordinator's last status. Thread-compatible.
//
// A server with too many TLS handshakes in progress ends some of them. The client retries a call
// for up to `handshake_patience` if the server ended or delayed the handshake. It then returns
// DEADLINE_EXCEEDED, and does not retry again at this server until a call succeeds.
std::unique_ptr<ClusterClient> ConnectToCluster(
    std::vector<std::string> addresses, std::shared_ptr<CertificateFiles> certificates = nullptr,
    absl::Duration handshake_patience = absl::ZeroDuration());

// Returns the answers of the servers, in order; an unavailable server is an error.
std::vector<ServerAnswer> AskAllServers(ClusterClient& cluster, absl::Duration timeout);

// Parses "h:p,file:PATH" into a list. INVALID_ARGUMENT: a part is not a server address
// (torchps/transport/server_address.h); the message names it.
absl::StatusOr<std::vector<std::string>> ParseAddresses(absl::string_view text);

// Returns the client that the flags of ClusterFlags() select for `psctl COMMAND`. Without
// --servers, connects to a run on this machine, with the run's certificates unless --certs is
// given. INVALID_ARGUMENT: a flag is invalid. Otherwise the errors of FindRunningRun and
// CertificateSet::Read.
absl::StatusOr<std::unique_ptr<ClusterClient>> ConnectByFlags(const FlagValues& flags,
                                                              absl::string_view command);

// Returns --servers, --run and --certs, for the commands that connect to a cluster.
std::vector<FlagSpec> ClusterFlags();

// Returns --certs, for the flag tables of the commands that connect.
FlagSpec CertificatesFlag();

// Reads the certificates in --certs; null if the flag is not set. Errors as CertificateSet::Read.
absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(const FlagValues& flags);

// Parses the required flag --servers of `psctl COMMAND`.
absl::StatusOr<std::vector<std::string>> ServersFlag(const FlagValues& flags,
                                                     absl::string_view command);

}  // namespace torchps
