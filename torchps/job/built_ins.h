#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/job.pb.h"

namespace torchps {

// Names of ps_worker's built-in models and data sources, available to programs that do not link
// libtorch, so that a typo is reported before anything starts. Programs with custom models or data
// are not limited to these names. All functions are thread-safe.

// Returns the values of model.name that torchps/worker/models can build.
std::vector<std::string> BuiltInModels();

// Returns the values of data.source that torchps/data/data_registry.h can open.
std::vector<std::string> BuiltInDataSources();

// Returns "loss" and the names of all metrics that ps_worker measures in at least one built-in
// task.
std::vector<std::string> BuiltInMetrics();

// Return INVALID_ARGUMENT if the model or data source is not built into ps_worker. The message
// names the field and the known values, and suggests the closest one. REQUIRES: NormalizeJobSpec
// accepted `job`.
absl::Status CheckBuiltInModel(const JobSpec& job);
absl::Status CheckBuiltInData(const JobSpec& job);

// Returns OK if `names` is auto, cpu, cuda, cuda:INDEX, cuda:all, or a comma-separated list of cpu
// and cuda:INDEX. Otherwise returns INVALID_ARGUMENT, naming the fault. Does not check that the
// devices exist, because only the worker's machine can.
absl::Status CheckDeviceNames(absl::string_view names);

}  // namespace torchps
