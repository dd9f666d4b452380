#include "tools/run/run_part.h"

#include "absl/strings/str_cat.h"
#include "common/process/exit_codes.h"

namespace torchps {

const Place& RunPart::PlaceIn(const Hosts& hosts) const {
  const Place& worker = hosts.workers[static_cast<size_t>(index)];
  return stage < 0 ? worker : worker.stages[static_cast<size_t>(stage)];
}

void RunPart::OpenLog(const std::string& directory) {
  if (directory.empty()) return;
  const std::string file =
      is_evaluator ? "evaluator" : absl::StrCat(is_server ? "server-" : "worker-", index);
  const std::string of_stage = stage < 0 ? "" : absl::StrCat("-stage-", stage);
  log.open(absl::StrCat(directory, "/", file, of_stage, ".log"), std::ios::app);
}

std::string RunPart::FailureText(absl::string_view what) const {
  std::string text = absl::StrCat(process->name(), " ", what);
  for (const std::string& word : held_output.LastWords()) absl::StrAppend(&text, "\n  ", word);
  return text;
}

int RunPart::FailureCode() const {
  const int code = process->running() ? 0 : process->exit_code();
  const bool ours =
      code >= static_cast<int>(ExitCode::kFailed) && code <= static_cast<int>(ExitCode::kLostSlot);
  return ours ? code : static_cast<int>(ExitCode::kFailed);
}

}  // namespace torchps
