#include "tools/base/become_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/process/exit_codes.h"

namespace torchps {

std::vector<char*> ExecArguments(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

int BecomeProgram(const std::vector<std::string>& words, std::ostream& error) {
  execv(words[0].c_str(), ExecArguments(words).data());
  error << "psctl: cannot start " << words[0] << ": " << std::strerror(errno) << std::endl;
  return static_cast<int>(ExitCode::kFailed);
}

}  // namespace torchps
