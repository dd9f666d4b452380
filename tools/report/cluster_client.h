#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.pb.h"
#include "security/certificate_files.h"
#include "tools/base/flag_table.h"
#include "tools/report/report.h"

namespace torchps {

// What psctl asks of a running cluster. An interface, so that reports and tables can be made in
// tests without one. Calls block until answered or until their deadline; a server that is away
// gives UNAVAILABLE with the system's reason ("connection refused").
class ClusterClient {
 public:
  virtual ~ClusterClient() = default;

  virtual const std::vector<std::string>& addresses() const = 0;

  // From server 0. With `wait_until_done` it waits for that server to come up and is then parked
  // there until the job has ended; DEADLINE_EXCEEDED if `timeout` passes before.
  virtual absl::StatusOr<JobStatus> GetJobStatus(bool wait_until_done, absl::Duration timeout) = 0;

  // Of server 0, which answers when the checkpoint is complete.
  virtual absl::StatusOr<CheckpointStatus> TakeCheckpoint(absl::Duration timeout) = 0;

  virtual absl::StatusOr<ServerStatus> GetServerStatus(int server, absl::Duration timeout) = 0;

  // Asks the server to end and returns once its connection has closed. DEADLINE_EXCEEDED: it
  // agreed but was still there after `timeout`.
  virtual absl::Status Shutdown(int server, absl::string_view reason, absl::Duration timeout) = 0;
};

// The client of a real cluster, over gRPC; by TLS if there are certificates (an operator's). A
// server that one side's certificate keeps away gives UNAUTHENTICATED, another kind of server
// FAILED_PRECONDITION. An address file is read again for each call, and a server that is away is
// looked for where the coordinator's last status had it. Thread-compatible.
std::unique_ptr<ClusterClient> ConnectToCluster(
    std::vector<std::string> addresses, std::shared_ptr<CertificateFiles> certificates = nullptr);

// The answers of all servers, in order; one that is away is an error in its place.
std::vector<ServerAnswer> AskAllServers(ClusterClient& cluster, absl::Duration timeout);

// "h:p,file:PATH" as a list. INVALID_ARGUMENT names the part that is neither
// (rpc/server_address.h).
absl::StatusOr<std::vector<std::string>> ParseAddresses(absl::string_view text);

// Returns the client that the flags of ClusterFlags() ask `psctl COMMAND` for. Without --servers it
// connects to a running run of this machine, with that run's certificates unless --certs is given.
// INVALID_ARGUMENT: a flag is wrong. Otherwise the errors of FindRunningRun and
// CertificateSet::Read.
absl::StatusOr<std::unique_ptr<ClusterClient>> ConnectByFlags(const FlagValues& flags,
                                                              absl::string_view command);

// --servers, --run and --certs, for each command that connects to a cluster.
std::vector<FlagSpec> ClusterFlags();

// --certs, for the tables of all commands that connect.
FlagSpec CertificatesFlag();

// The certificates that --certs names; null without it. Errors are CertificateSet::Read's.
absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(const FlagValues& flags);

// The flag --servers of `psctl COMMAND`, which must be there.
absl::StatusOr<std::vector<std::string>> ServersFlag(const FlagValues& flags,
                                                     absl::string_view command);

}  // namespace torchps
