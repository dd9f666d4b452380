#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "data/dataset.h"
#include "proto/job.pb.h"

namespace torchps {

// What the openers of data sources share.

// Whether the job evaluates, so that it needs a test set.
bool WantsTest(const JobSpec& job);

// INVALID_ARGUMENT: data.path is empty, and `what` belongs there.
absl::Status NeedsPath(const std::string& source, const std::string& what);

// "10000 to train on, 10000 to test on"
std::string Counts(const DataSource& source);

// As JSON arrays: numbers with enough digits to give the same ones back, texts as UTF-8.
std::string JsonArray(const std::vector<float>& numbers);
std::string JsonArray(const std::vector<double>& numbers);
std::string JsonArray(const std::vector<std::string>& texts);

// Keeps the classes' names for people and in what becomes the model's metadata.
void NameClasses(const std::vector<std::string>& names, DataSource& source);

}  // namespace torchps
