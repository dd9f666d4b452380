#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torchps/data/dataset.h"
#include "torchps/data/preprocessing.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Functions that the openers of data sources share.

// True if the job evaluates, so that it needs a test set.
bool WantsTest(const JobSpec& job);

// Returns the INVALID_ARGUMENT error for an empty data.path. `what` names the file or folder that
// the path must lead to, for example "a CSV file".
absl::Status NeedsPath(const std::string& source, const std::string& what);

// Returns the dataset sizes, for example "10000 to train on, 10000 to test on".
std::string Counts(const DataSource& source);

// Returns the preprocessing of the trained model, from job.data.preprocessing; empty if the job has
// none. INVALID_ARGUMENT: an entry is invalid.
absl::StatusOr<Preprocessing> KnownPreprocessing(const JobSpec& job);

// Returns the INVALID_ARGUMENT error for a model that was not trained on `what`, the kind of data
// that the job names, for example "images".
absl::Status NotTrainedOn(const std::string& what, const JobSpec& job);

// Opens the samples that job.data names: digits | idx | cifar10 | images | csv | text | tokens. If
// `path_override` (the worker's --data) is not empty, it replaces job.data.path. Image files and
// tokens are read batch by batch, other data at once. The same job and files give the same samples
// on every machine. `test` is null if job.training.evaluate is false. REQUIRES: NormalizeJobSpec
// accepted `job`.
//
// If job.data.use is EVALUATION or PREDICTION, opens only the samples for `test`, converted by
// job.data.preprocessing; `train` is a dataset of the same shape. For text, PREDICTION without a
// path does not open a file, because the model gets a prompt.
//
// NOT_FOUND: a file is missing; the message names it and suggests a fix. DATA_LOSS: a file is
// truncated or damaged. INVALID_ARGUMENT: the source is unknown (the message lists the known
// sources), a label is out of range, or a field of job.data does not fit the file. Messages are one
// sentence.
absl::StatusOr<DataSource> OpenData(const JobSpec& job, const std::string& path_override = "");

// Returns true if job.data.preprocessing defines how samples become model inputs. job.data.use may
// be EVALUATION or PREDICTION only then.
bool HasPreprocessing(const JobSpec& job);

}  // namespace torchps
