#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "torchps/common/log_line.h"
#include "torchps/security/certificate_files.h"

namespace torchps {

// gRPC credentials for mutual TLS. CertificateSet::CheckPeer decides which certificates to accept.
// It runs after the handshake has proved that the peer holds the certificate's key, and before any
// other data is read. gRPC's built-in verification is not used because neither side would learn the
// reason for a rejection.
//
// The credentials keep `files` alive. New connections use the current certificates.

// Accepts clients of any role in the same job; torchps/security/call_admission.h decides about
// calls. `log` receives a line for each rejected client, limited by LogThrottle. Called on gRPC's
// threads.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(
    std::shared_ptr<CertificateFiles> files, LogLine log);

// Connects only to servers of the same job, under a name in the server's certificate. If a call
// fails for lack of a connection, the call's error contains the reason.
std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(
    std::shared_ptr<CertificateFiles> files);

// Returns TlsChannelCredentials, or insecure credentials if `files` is null.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<CertificateFiles>& files);

// Connects only to workers of the same job, without checking the host name; used between the
// processes of a replica. Returns insecure credentials if `files` is null.
std::shared_ptr<grpc::ChannelCredentials> MemberCredentialsFor(
    const std::shared_ptr<CertificateFiles>& files);

// Opens the directory given by --certs, or returns null if `directory` is empty. Returns the errors
// of CertificateFiles::Open.
absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(const std::string& directory,
                                                                   Role role, LogLine log);

}  // namespace torchps
