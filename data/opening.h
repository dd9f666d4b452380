#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/preprocessing.h"
#include "proto/job.pb.h"

namespace torchps {

// Functions that the openers of data sources share.

// Whether the job evaluates, so that it needs a test set.
bool WantsTest(const JobSpec& job);

// INVALID_ARGUMENT: data.path is empty, and `what` belongs there.
absl::Status NeedsPath(const std::string& source, const std::string& what);

// "10000 to train on, 10000 to test on"
std::string Counts(const DataSource& source);

// The preprocessing of the model in use, from job.data.preprocessing; empty where there is none.
// INVALID_ARGUMENT: an entry cannot be read.
absl::StatusOr<Preprocessing> KnownPreprocessing(const JobSpec& job);

// INVALID_ARGUMENT: the model in use has no preprocessing of `what`, the job's kind of data.
absl::Status NotTrainedOn(const std::string& what, const JobSpec& job);

}  // namespace torchps
