#include "tools/run/buffered_output.h"

#include "absl/strings/strip.h"

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

}  // namespace torchps
