#include "tools/drill/fault_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/split_mix64.h"

namespace torchps {
namespace {

absl::Status Wrong(Fault::Kind kind, absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(kind == Fault::Kind::kKill ? "--kill=" : "--freeze=", text, ": ", what));
}

}  // namespace

absl::StatusOr<FaultRule> ParseFaultRule(Fault::Kind kind, absl::string_view text, int servers,
                                         int workers) {
  FaultRule rule;
  rule.kind = kind;
  const std::vector<absl::string_view> words = absl::StrSplit(text, ':');
  const std::pair<absl::string_view, absl::string_view> target =
      absl::StrSplit(words[0], absl::MaxSplits('.', 1));
  if (target.first != "server" && target.first != "worker") {
    return Wrong(kind, text, "expected 'server' or 'worker' first, as in server:every=5s");
  }
  rule.is_server = target.first == "server";
  const int count = rule.is_server ? servers : workers;
  if (words[0] != target.first &&
      (!absl::SimpleAtoi(target.second, &rule.index) || rule.index < 0 || rule.index >= count)) {
    return Wrong(kind, text,
                 absl::StrCat("there is no ", words[0], ": ", target.first, "s are numbered 0 to ",
                              count - 1));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> setting =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (words[i].find('=') == absl::string_view::npos) {
      return Wrong(kind, text,
                   absl::StrCat("'", words[i], "' does not say when; expected every=5s or at=30s"));
    }
    absl::Duration value;
    if (!absl::ParseDuration(setting.second, &value) || value <= absl::ZeroDuration() ||
        value == absl::InfiniteDuration()) {
      return Wrong(kind, text, absl::StrCat("'", words[i], "' has no duration like 5s or 500ms"));
    }
    if (setting.first == "every") {
      rule.every = value;
    } else if (setting.first == "at") {
      rule.at = value;
    } else if (setting.first == "for" && kind == Fault::Kind::kFreeze) {
      rule.frozen = value;
    } else {
      return Wrong(kind, text,
                   absl::StrCat("'", words[i], "' is not every=DURATION",
                                kind == Fault::Kind::kFreeze ? ", at=DURATION or for=DURATION"
                                                             : " or at=DURATION"));
    }
  }
  if ((rule.every == absl::ZeroDuration()) == (rule.at == absl::ZeroDuration())) {
    return Wrong(kind, text, "expected either every=DURATION or at=DURATION");
  }
  return rule;
}

FaultSchedule::FaultSchedule(const Options& options) {
  uint64_t random = options.seed;
  for (const FaultRule& rule : options.rules) {
    const int count = rule.is_server ? options.servers : options.workers;
    const bool once = rule.every == absl::ZeroDuration();
    for (absl::Duration tick = once ? rule.at : rule.every; tick <= options.length;
         tick += rule.every) {
      // Drawn in any case, so that one rule's index does not shift the others' times.
      const auto drawn =
          static_cast<int>(UniformBelow(random, static_cast<uint64_t>(std::max(count, 1))));
      const double shift = (UnitDouble(SplitMix64(random)) - 0.5) / 2;
      const absl::Duration at = tick + rule.every * shift;
      const PartName part{rule.is_server, rule.index >= 0 ? rule.index : drawn};
      if (at <= options.length) {
        events_.push_back({at, {rule.kind, part}});
        if (rule.kind == Fault::Kind::kFreeze) {
          events_.push_back({at + rule.frozen, {Fault::Kind::kThaw, part}});
        }
      }
      if (once) break;
    }
  }
  std::stable_sort(events_.begin(), events_.end(),
                   [](const Event& a, const Event& b) { return a.at < b.at; });
}

absl::Duration FaultSchedule::NextAt() const {
  return next_ < events_.size() ? events_[next_].at : absl::InfiniteDuration();
}

std::vector<Fault> FaultSchedule::Take(absl::Duration now) {
  std::vector<Fault> due;
  while (NextAt() <= now) due.push_back(events_[next_++].fault);
  return due;
}

}  // namespace torchps
