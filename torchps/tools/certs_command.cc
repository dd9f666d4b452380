#include "torchps/tools/certs_command.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/types.h"
#include "torchps/security/certificate_authority.h"
#include "torchps/security/roles.h"

namespace torchps {
namespace {

constexpr int kDefaultDays = 365;
constexpr int kMaxDays = 3650;
// Longer than the validity of any certificate that the authority signs.
constexpr absl::Duration kAuthorityValidity = absl::Hours(24 * kMaxDays * 2);
// Certificates are valid from this long before now, so that machines whose clocks are behind accept
// them.
constexpr absl::Duration kClockSkew = absl::Hours(1);

absl::StatusOr<std::unique_ptr<CertificateAuthority>> LoadOrMake(const CertsRequest& request,
                                                                 std::ostream& out) {
  const std::string directory = absl::StrCat(request.directory, "/ca");
  absl::StatusOr<std::unique_ptr<CertificateAuthority>> authority =
      CertificateAuthority::Load(directory);
  if (authority.status().code() != absl::StatusCode::kNotFound) return authority;
  authority = CertificateAuthority::Create(request.job, request.now - kClockSkew,
                                           request.now + kAuthorityValidity);
  if (!authority.ok()) return authority;
  if (absl::Status status = (*authority)->Save(directory); !status.ok()) return status;
  out << directory << "  the authority; its key.pem signs new certificates: keep it off the "
      << "cluster\n";
  return authority;
}

}  // namespace

std::vector<FlagSpec> CertsFlags() {
  return {
      {"dir", "DIR", "The directory for the certificates. Required."},
      {"job", "NAME",
       "The job or cluster that the certificates belong to; servers refuse those of another one. "
       "Required."},
      {"hosts", "HOST,...",
       "Host names and addresses of the servers, without ports. Loopback is always included."},
      {"slots", "N",
       "Also makes a certificate for each slot from 0 to N - 1, valid only for that slot."},
      {"days", "N", "How many days the certificates are valid. Default: 365."},
  };
}

absl::Status MakeCertificates(const CertsRequest& request, std::ostream& out) {
  if (absl::Status status = CheckIdentity({request.job, Role::kServer, "any"}); !status.ok()) {
    return status;
  }
  if (mkdir(request.directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("cannot make ", request.directory, ": ",
                                               absl::AsciiStrToLower(std::strerror(errno))));
  }
  const absl::StatusOr<std::unique_ptr<CertificateAuthority>> authority = LoadOrMake(request, out);
  if (!authority.ok()) return authority.status();
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  for (const std::string& host : request.hosts) {
    if (!absl::c_linear_search(hosts, host)) hosts.push_back(host);
  }

  const auto make = [&](Role role, const std::string& name,
                        const std::string& folder) -> absl::Status {
    CertificateAuthority::Request certificate;
    certificate.identity = {request.job, role, name};
    if (role == Role::kServer) certificate.hosts = hosts;
    certificate.not_before = request.now - kClockSkew;
    certificate.not_after = request.now + request.validity;
    const absl::StatusOr<IssuedCertificate> issued = (*authority)->Issue(certificate);
    if (!issued.ok()) return issued.status();
    const std::string directory = absl::StrCat(request.directory, "/", folder);
    const absl::Status written =
        WriteCertificates(directory, (*authority)->certificate_pem(), *issued);
    if (written.ok()) {
      out << directory << "  " << ToUri(certificate.identity)
          << (role == Role::kServer ? absl::StrCat(" for ", absl::StrJoin(hosts, ", ")) : "")
          << "\n";
    }
    return written;
  };
  for (const Role role : {Role::kServer, Role::kWorker, Role::kOperator}) {
    const absl::Status made = make(role, "any", std::string(RoleName(role)));
    if (!made.ok()) return made;
  }
  for (int slot = 0; slot < request.slots; ++slot) {
    const absl::Status made =
        make(Role::kWorker, absl::StrCat("slot-", slot), absl::StrCat("worker-", slot));
    if (!made.ok()) return made;
  }
  out << "valid until "
      << absl::FormatTime("%Y-%m-%d", request.now + request.validity, absl::UTCTimeZone())
      << "; pass each process its own directory with --certs=DIR" << std::endl;
  return absl::OkStatus();
}

int CertsCommand(const FlagValues& flags, std::ostream& out, std::ostream& error) {
  const auto fail = [&](const absl::Status& status) {
    error << "psctl: " << status.message() << std::endl;
    return static_cast<int>(ExitCodeFor(status));
  };
  for (const char* flag : {"dir", "job"}) {
    if (!flags.Has(flag)) {
      return fail(absl::InvalidArgumentError(
          "'psctl certs' needs --dir=DIR and --job=NAME, and --hosts=HOST,... of the servers"));
    }
  }
  const absl::StatusOr<int64_t> slots = flags.Integer("slots", 0, 0, kMaxSlots);
  if (!slots.ok()) return fail(slots.status());
  const absl::StatusOr<int64_t> days = flags.Integer("days", kDefaultDays, 1, kMaxDays);
  if (!days.ok()) return fail(days.status());
  CertsRequest request;
  request.directory = flags.Get("dir");
  request.job = flags.Get("job");
  request.hosts = absl::StrSplit(flags.Get("hosts"), ',', absl::SkipEmpty());
  request.slots = static_cast<int>(*slots);
  request.validity = absl::Hours(24) * *days;
  request.now = absl::Now();
  const absl::Status made = MakeCertificates(request, out);
  return made.ok() ? static_cast<int>(ExitCode::kOk) : fail(made);
}

}  // namespace torchps
