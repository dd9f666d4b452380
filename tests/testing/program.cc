#include "tests/testing/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

template <typename Predicate>
std::string GetFirst(const std::vector<std::string>& lines, Predicate matches) {
  const auto found = std::find_if(lines.begin(), lines.end(), matches);
  return found == lines.end() ? "" : *found;
}

}  // namespace

Program::Program(std::vector<std::string> command, bool stop_by_stdin) {
  ChildProcess::Options options;
  options.name = command[0];
  options.command = std::move(command);
  options.stop_by_stdin = stop_by_stdin;
  auto child = ChildProcess::Start(std::move(options));
  TPS_CHECK(child.ok(), "cannot start the program");
  child_ = *std::move(child);
}

bool Program::Watch(absl::FunctionRef<bool()> enough, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (true) {
    child_->Collect([this](ChildProcess::Stream stream, absl::string_view line) {
      (stream == ChildProcess::Stream::kOut ? out_ : error_).emplace_back(line);
    });
    if (enough() || !child_->running()) return true;
    if (absl::Now() >= deadline) return false;
    WaitForActivity({child_.get()}, /*wake_fd=*/-1, deadline - absl::Now());
  }
}

std::string Program::AwaitLine(absl::string_view prefix, absl::Duration patience) {
  const auto matches = [prefix](const std::string& line) { return absl::StartsWith(line, prefix); };
  Watch([&] { return !GetFirst(out_, matches).empty(); }, patience);
  return GetFirst(out_, matches);
}

std::string Program::AwaitError(absl::string_view words, absl::Duration patience) {
  const auto matches = [words](const std::string& line) { return absl::StrContains(line, words); };
  Watch([&] { return !GetFirst(error_, matches).empty(); }, patience);
  return GetFirst(error_, matches);
}

int Program::AwaitExit(absl::Duration patience) {
  Watch([] { return false; }, patience);
  return child_->running() ? -1 : child_->exit_code();
}

ServerProgram StartServerProgram(std::vector<std::string> flags, int max_files) {
  flags.insert(flags.begin(), "torchps/ps_server");
  if (max_files > 0) {
    const std::string limited = absl::StrCat("ulimit -n ", max_files, "; exec \"$0\" \"$@\"");
    flags.insert(flags.begin(), {"/bin/sh", "-c", limited});
  }
  ServerProgram server;
  server.program = std::make_unique<Program>(std::move(flags));
  const std::string line = server.program->AwaitLine("torchps_server ready ");
  const std::string key = "address=";
  if (const size_t begin = line.find(key); begin != std::string::npos) {
    const size_t end = line.find(' ', begin);
    server.address = line.substr(begin + key.size(), end - begin - key.size());
  }
  return server;
}

}  // namespace torchps
