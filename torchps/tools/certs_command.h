#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "torchps/tools/base/flag_table.h"

namespace torchps {

// Implements `psctl certs`: makes a certificate authority and the certificates for servers, workers
// and operators.

std::vector<FlagSpec> CertsFlags();

struct CertsRequest {
  std::string directory;
  std::string job;
  // Host names of the servers, in addition to this machine's loopback.
  std::vector<std::string> hosts;
  // If above 0, also makes a certificate for each slot, valid only for that slot.
  int slots = 0;
  absl::Duration validity;
  absl::Time now;
};

// Writes ca.pem, cert.pem and key.pem to DIRECTORY/server, /worker, /operator and /worker-N, signed
// by the authority in DIRECTORY/ca. Creates the authority if it does not exist. Replaces existing
// certificates; running processes load the new ones. INVALID_ARGUMENT: invalid job name or host.
// UNAVAILABLE, FAILED_PRECONDITION: the directory cannot be used.
absl::Status MakeCertificates(const CertsRequest& request, std::ostream& out);

int CertsCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
