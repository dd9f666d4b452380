#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace torchps {

// What ps_worker knows by name, told to programs without libtorch, so that a typo is found before
// anything starts. A program of one's own brings other models and data: these say nothing of it.
// All are thread-safe.

// Values of model.name that worker/models builds.
std::vector<std::string> BuiltInModels();

// Values of data.source that data/data_registry.h opens.
std::vector<std::string> BuiltInDataSources();

// Returns the names that ps_worker measures on some built-in task: the loss and all metrics.
std::vector<std::string> BuiltInMetrics();

// INVALID_ARGUMENT: ps_worker has no such model or data; names the field and all that it has, and
// the one that was probably meant. REQUIRES: NormalizeJobSpec accepted `job`.
absl::Status CheckBuiltInModel(const JobSpec& job);
absl::Status CheckBuiltInData(const JobSpec& job);

// INVALID_ARGUMENT: `names` is none of auto, cpu, cuda, cuda:INDEX and cuda:all, and no list of cpu
// and cuda:INDEX with commas between; names what is wrong. Whether the devices are there, only the
// worker's machine knows.
absl::Status CheckDeviceNames(absl::string_view names);

}  // namespace torchps
