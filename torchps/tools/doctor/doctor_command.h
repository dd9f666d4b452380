#pragma once

#include <ostream>
#include <vector>

#include "torchps/proto/job.pb.h"
#include "torchps/tools/base/flag_table.h"
#include "torchps/tools/doctor/doctor_checks.h"

namespace torchps {

// Returns a finding on how much a job with this durability would lose if the disk behind one
// server's --dir failed. `servers_apart` is the number of servers with separate directories, or 0
// if the servers share a directory, as under 'psctl run'. `durability` is normalised
// (torchps/job/job_spec.h). Warning: the loss exceeds the promise of the durability level, and
// copies could prevent it. Problem: the job asks for copies that this layout cannot provide.
Finding CheckDiskLoss(const DurabilitySpec& durability, int servers_apart);

// Implements `psctl doctor`: checks the requirements of a run before the run starts.

std::vector<FlagSpec> DoctorFlags();

// Runs the checks that the flags select. Reads files and connects to addresses, but does not start
// servers or workers.
std::vector<Finding> Examine(const FlagValues& flags);

// Returns 0 without problems, otherwise 1.
int DoctorCommand(const FlagValues& flags, std::ostream& out, std::ostream& error);

}  // namespace torchps
