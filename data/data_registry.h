#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "proto/job.pb.h"

namespace torchps {

// Opens the samples that job.data names: digits | idx | cifar10 | images | csv | text | tokens.
// `path_override`, the worker's --data, replaces job.data.path unless empty. Images files and
// tokens are read batch by batch, everything else at once. The same job and files give the same
// samples on every machine. `test` is null where job.training.evaluate is false.
// REQUIRES: NormalizeJobSpec accepted `job`.
//
// With job.data.use EVALUATION or PREDICTION the samples are those of `test`, converted by
// job.data.preprocessing; `train` is a set of the same shape. PREDICTION without a path opens no
// text: the model gets a prompt.
//
// NOT_FOUND: a file is missing; says which, and what to do. DATA_LOSS: a file is truncated or
// damaged. INVALID_ARGUMENT: an unknown source (lists the known ones), a label out of range, a
// field of job.data that does not suit the file. Each one sentence.
absl::StatusOr<DataSource> OpenData(const JobSpec& job, const std::string& path_override = "");

// Whether job.data.preprocessing says how samples become the inputs of the model in use, so that
// job.data.use may be EVALUATION or PREDICTION.
bool HasPreprocessing(const JobSpec& job);

}  // namespace torchps
