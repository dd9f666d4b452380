#pragma once

#include "proto/job.pb.h"
#include "tools/doctor/doctor_checks.h"

namespace torchps {

// Returns a finding on how much a job with this durability would lose if the disk behind one
// server's --dir failed. `servers_apart` is the number of servers with separate directories, or 0
// if the servers share a directory, as under 'psctl run'. `durability` is normalised
// (job/job_spec.h). Warning: the loss exceeds the promise of the durability level, and copies could
// prevent it. Problem: the job asks for copies that this layout cannot provide.
Finding CheckDiskLoss(const DurabilitySpec& durability, int servers_apart);

}  // namespace torchps
