#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "security/certificate_files.h"

namespace torchps {

// What gRPC is given to speak TLS in which both sides show a certificate. Which ones are believed
// is decided by CertificateSet::CheckPeer, after the handshake has shown that the peer holds its
// certificate's key and before anything else is read: gRPC's own verification tells neither side
// what it refuses or why.
//
// Credentials keep `files` alive and follow it when it changes, for connections made from then on.

// Every role of our job may connect; security/call_admission.h decides about calls. `log` gets a
// line about a client that is refused, the same one once in ten seconds; called on gRPC's threads.
std::shared_ptr<grpc::ServerCredentials> TlsServerCredentials(
    std::shared_ptr<CertificateFiles> files, std::function<void(const std::string& line)> log);

// Connects to servers of our job only, under a name that their certificate has. The error of a call
// that finds no connection contains the reason.
std::shared_ptr<grpc::ChannelCredentials> TlsChannelCredentials(
    std::shared_ptr<CertificateFiles> files);

// TlsChannelCredentials, or those of a connection without TLS where `files` is null.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<CertificateFiles>& files);

// Connects to workers of our job only, under whatever name: processes of a replica to each other. A
// connection without TLS where `files` is null.
std::shared_ptr<grpc::ChannelCredentials> MemberCredentialsFor(
    const std::shared_ptr<CertificateFiles>& files);

// What the flag --certs says: no files where `directory` is empty. Errors are CertificateSet's.
absl::StatusOr<std::shared_ptr<CertificateFiles>> OpenCertificates(
    const std::string& directory, Role role, std::function<void(const std::string& line)> log);

}  // namespace torchps
