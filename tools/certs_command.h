#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/base/flag_table.h"

namespace torchps {

// `psctl certs`: an authority, and certificates for servers, workers and operators.

std::vector<FlagSpec> CertsFlags();

struct CertsRequest {
  std::string directory;
  std::string job;
  // Under which servers are found, beside this machine's loopback.
  std::vector<std::string> hosts;
  // Above 0: also a certificate for each of so many slots, which speaks for that slot only.
  int slots = 0;
  absl::Duration validity;
  absl::Time now;
};

// Makes DIRECTORY/server, /worker, /operator and /worker-N, each with ca.pem, cert.pem and key.pem,
// signed by the authority in DIRECTORY/ca, which is made first if it is not there. Certificates
// that are there are replaced, so that running processes take the new ones. INVALID_ARGUMENT: the
// job or a host; UNAVAILABLE, FAILED_PRECONDITION: what is wrong with the directory.
absl::Status MakeCertificates(const CertsRequest& request, std::ostream& out);

int CertsCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
