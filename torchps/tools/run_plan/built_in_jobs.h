#pragma once

#include <string>
#include <vector>

namespace torchps {

// Returns the text of a built-in job (deploy/jobs) by short name, for example "digits", or by file
// name without the extension. Returns "" if `name` is unknown, or if a file of this name exists.
std::string BuiltInJob(const std::string& name);

// Returns the text of a job file or a built-in job; "" if it cannot be read. "-" is standard input.
std::string JobText(const std::string& file);

// Returns true if only this process can read the file, and only once: "-", a pipe, or a file in
// /dev.
bool IsReadOnce(const std::string& file);

// Returns the short names of the built-in jobs.
std::vector<std::string> BuiltInJobNames();

}  // namespace torchps
