#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/preprocessing.h"
#include "proto/job.pb.h"

namespace torchps {

// Functions that the openers of data sources share.

// True if the job evaluates, so that it needs a test set.
bool WantsTest(const JobSpec& job);

// Returns INVALID_ARGUMENT: data.path is empty, and must be set to `what`.
absl::Status NeedsPath(const std::string& source, const std::string& what);

// Returns the dataset sizes, for example "10000 to train on, 10000 to test on".
std::string Counts(const DataSource& source);

// Returns the model's preprocessing from job.data.preprocessing; empty if it is not set.
// INVALID_ARGUMENT: an entry is invalid.
absl::StatusOr<Preprocessing> KnownPreprocessing(const JobSpec& job);

// Returns INVALID_ARGUMENT: the model was not trained on `what`, the job's kind of data.
absl::Status NotTrainedOn(const std::string& what, const JobSpec& job);

}  // namespace torchps
