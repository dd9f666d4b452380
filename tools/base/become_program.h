#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace torchps {

// Returns `words` as the argument array for execv() and posix_spawn(): pointers into `words`, then
// a null pointer.
std::vector<char*> ExecArguments(const std::vector<std::string>& words);

// Replaces this process with the program words[0]. Returns only on failure: writes the reason to
// `error` and returns psctl's exit code.
int BecomeProgram(const std::vector<std::string>& words, std::ostream& error);

}  // namespace torchps
