#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace torchps {

// Returns `words` as execv() and posix_spawn() want them: borrowed, with a null at the end.
std::vector<char*> ExecArguments(const std::vector<std::string>& words);

// Replaces this process by the program words[0]. Returns only if that fails: the exit code, after a
// sentence on `error`.
int BecomeProgram(const std::vector<std::string>& words, std::ostream& error);

}  // namespace torchps
