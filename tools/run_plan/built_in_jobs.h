#pragma once

#include <string>
#include <vector>

namespace torchps {

// Returns the text of a job that psctl brings along (deploy/jobs), by its short name, as "digits",
// or by its file's name without the ending. Empty: there is none, or a file of this name goes
// before it.
std::string BuiltInJob(const std::string& name);

// Returns the text of a job file, or of a job that psctl brings along; empty if it cannot be read.
// "-" is standard input.
std::string JobText(const std::string& file);

// Whether only this process can read the file, and only once: "-", a pipe, a file of /dev.
bool IsReadOnce(const std::string& file);

// The short names.
std::vector<std::string> BuiltInJobNames();

}  // namespace torchps
