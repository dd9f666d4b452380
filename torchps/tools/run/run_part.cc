#include "torchps/tools/run/run_part.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "torchps/common/check.h"
#include "torchps/common/process/command_line.h"

namespace torchps {

void BufferedOutput::Add(absl::Duration now, absl::string_view line) {
  absl::ConsumePrefix(&line, "ps_worker: ");
  absl::ConsumePrefix(&line, "ps_server: ");
  held_.emplace_back(now, line);
  last_ = std::string(line);
}

std::vector<std::string> BufferedOutput::Take(absl::Duration until) {
  std::vector<std::string> lines;
  while (!held_.empty() && held_.front().first <= until) {
    lines.push_back(std::move(held_.front().second));
    held_.pop_front();
  }
  return lines;
}

std::vector<std::string> BufferedOutput::LastWords() const {
  std::vector<std::string> words;
  for (const auto& [time, line] : held_) words.push_back(line);
  if (words.empty() && !last_.empty()) words.push_back(last_);
  return words;
}

void BufferedOutput::Clear() {
  held_.clear();
  last_.clear();
}

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

ChildProcess::Options RunPart::ServerIn(const RunPlan& plan, bool trains,
                                        const std::vector<std::string>& servers) const {
  Place place = plan.hosts.servers[static_cast<size_t>(index)];
  // Reuses the port of the first start, because workers know the server by that address.
  if (const size_t colon = address.rfind(':'); colon != std::string::npos) {
    TPS_CHECK(absl::SimpleAtoi(address.substr(colon + 1), &place.port), "checked before");
  }
  LaunchOptions launch = plan.launch;
  // A server restarted during training continues this run, not an earlier one.
  if (trains) launch.resume = false;
  // Server 0 needs the address of a server with copies. It ignores the address if a manifest exists
  // on disk.
  if (has_lost_disk) launch.copies_at = servers[1];
  return ServerProgram(launch, index, place);
}

std::string RunPart::FailureText(absl::string_view what) const {
  std::string text = absl::StrCat(process->name(), " ", what);
  for (const std::string& word : buffered_output.LastWords()) absl::StrAppend(&text, "\n  ", word);
  return text;
}

int RunPart::FailureCode() const {
  const int code = process->running() ? 0 : process->exit_code();
  const bool ours =
      code >= static_cast<int>(ExitCode::kFailed) && code <= static_cast<int>(ExitCode::kLostSlot);
  return ours ? code : static_cast<int>(ExitCode::kFailed);
}

}  // namespace torchps
