#pragma once

#include <string>
#include <vector>

namespace torchps {

// The text of a job that psctl brings along (deploy/jobs), by its short name, as "digits", or by
// its file's name without the ending. Empty: there is none, or `name` is a file in this folder.
std::string BuiltInJob(const std::string& name);

// The short names.
std::vector<std::string> BuiltInJobNames();

}  // namespace torchps
