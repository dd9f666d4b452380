#pragma once

#include "proto/job.pb.h"
#include "tools/doctor/doctor_checks.h"

namespace torchps {

// What the loss of the disk behind one server's --dir would cost a job of this durability, in a
// sentence. `servers_apart`: servers that have a directory each; 0: all have one, as under 'psctl
// run'. `durability` is normalised (job/job_spec.h). A warning: more than the level promises,
// though copies could keep it. A problem: copies that there cannot be.
Finding CheckDiskLoss(const DurabilitySpec& durability, int servers_apart);

}  // namespace torchps
