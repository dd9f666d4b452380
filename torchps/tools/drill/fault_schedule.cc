#include "torchps/tools/drill/fault_schedule.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

// Returns true if the fault applies to network links.
bool IsOfLinks(Fault::Kind kind) {
  return kind == Fault::Kind::kCut || kind == Fault::Kind::kReset;
}

absl::Duration UsualLength(Fault::Kind kind) {
  return kind == Fault::Kind::kFreeze ? absl::Seconds(1) : absl::Seconds(5);
}

// Parses the words of a rule and reports errors.
class RuleParser {
 public:
  RuleParser(Fault::Kind kind, absl::string_view text, int servers, int workers, int stages)
      : text_(text), servers_(servers), workers_(workers), stages_(stages) {
    rule_.kind = kind;
    if (GetEnd(kind).has_value()) rule_.lasting = UsualLength(kind);
  }

  absl::StatusOr<FaultRule> Parse() {
    const std::vector<absl::string_view> words = absl::StrSplit(text_, ':');
    if (absl::Status whom = ReadWhom(words[0]); !whom.ok()) return whom;
    for (size_t i = 1; i < words.size(); ++i) {
      if (absl::Status setting = ReadSetting(words[i]); !setting.ok()) return setting;
    }
    if ((rule_.every == absl::ZeroDuration()) == (rule_.at == absl::ZeroDuration())) {
      return Wrong("expected either every=DURATION or at=DURATION");
    }
    return rule_;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("--", FindFlag(rule_.kind), "=", text_, ": ", what));
  }

  absl::Status ReadWhom(absl::string_view whom) {
    if (IsOfLinks(rule_.kind) && whom == "halves") {
      rule_.halves = true;
      return absl::OkStatus();
    }
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(whom, absl::MaxSplits('-', 1));
    if (absl::Status first = ReadPart(ends.first, &rule_.is_server, &rule_.index, &rule_.stage);
        !first.ok()) {
      return first;
    }
    if (rule_.stage >= 0 && IsOfLinks(rule_.kind)) {
      return Wrong("network faults apply to all processes of a worker, as in worker.1-server.0");
    }
    if (rule_.kind == Fault::Kind::kCrowd && !rule_.is_server) {
      return Wrong("half-open connections go to servers only, as in server:every=5s");
    }
    if (rule_.kind == Fault::Kind::kLoseDisk && !rule_.is_server) {
      return Wrong("only servers keep files on a disk, as in server.1:at=20s");
    }
    if (ends.first == whom) return absl::OkStatus();
    bool other_is_server = false;
    int no_stage = -1;
    if (absl::Status second = ReadPart(ends.second, &other_is_server, &rule_.other, &no_stage);
        !second.ok()) {
      return second;
    }
    if (!IsOfLinks(rule_.kind) || rule_.is_server || !other_is_server) {
      return Wrong(absl::StrCat("'", whom, "' is not one part",
                                IsOfLinks(rule_.kind) ? " or a link like worker.1-server.0" : ""));
    }
    return absl::OkStatus();
  }

  // "server", "worker.2", "worker.2.1".
  absl::Status ReadPart(absl::string_view part, bool* is_server, int* index, int* stage) const {
    std::pair<absl::string_view, absl::string_view> name =
        absl::StrSplit(part, absl::MaxSplits('.', 1));
    if (name.first != "server" && name.first != "worker") {
      return Wrong(absl::StrCat("expected 'server' or 'worker'",
                                IsOfLinks(rule_.kind) ? ", or 'halves'," : "",
                                " first, as in server:every=5s"));
    }
    *is_server = name.first == "server";
    const int count = *is_server ? servers_ : workers_;
    const std::pair<absl::string_view, absl::string_view> process =
        absl::StrSplit(name.second, absl::MaxSplits('.', 1));
    if (!*is_server && stages_ > 0 && process.first != name.second) {
      if (!absl::SimpleAtoi(process.second, stage) || *stage < 0 || *stage >= stages_) {
        return Wrong(absl::StrCat("there is no ", part,
                                  ": the stages of a worker are numbered 0 to ", stages_ - 1));
      }
      name.second = process.first;
    }
    if (part != name.first &&
        (!absl::SimpleAtoi(name.second, index) || *index < 0 || *index >= count)) {
      return Wrong(
          absl::StrCat("there is no ", part, ": ", name.first, "s are numbered 0 to ", count - 1));
    }
    return absl::OkStatus();
  }

  absl::Status ReadSetting(absl::string_view word) {
    const std::pair<absl::string_view, absl::string_view> setting =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (word.find('=') == absl::string_view::npos) {
      return Wrong(absl::StrCat("'", word, "' is not a setting; expected every=5s or at=30s"));
    }
    absl::Duration value;
    if (!absl::ParseDuration(setting.second, &value) || value <= absl::ZeroDuration() ||
        value == absl::InfiniteDuration()) {
      return Wrong(absl::StrCat("'", word, "' needs a duration such as 5s or 500ms"));
    }
    const bool ends = GetEnd(rule_.kind).has_value();
    if (setting.first == "every") {
      rule_.every = value;
    } else if (setting.first == "at") {
      rule_.at = value;
    } else if (setting.first == "for" && ends) {
      rule_.lasting = value;
    } else {
      return Wrong(absl::StrCat("'", word, "' is not every=DURATION",
                                ends ? ", at=DURATION or for=DURATION" : " or at=DURATION"));
    }
    return absl::OkStatus();
  }

  const absl::string_view text_;
  const int servers_;
  const int workers_;
  const int stages_;
  FaultRule rule_;
};

// Draws half of `count` parts: at least one, and fewer than `count` if count > 1.
std::vector<bool> DrawHalf(int count, uint64_t& random) {
  std::vector<bool> chosen(static_cast<size_t>(count), false);
  for (int left = std::max(1, count / 2); left > 0;) {
    const size_t drawn = UniformBelow(random, static_cast<uint64_t>(count));
    if (chosen[drawn]) continue;
    chosen[drawn] = true;
    --left;
  }
  return chosen;
}

std::vector<NetworkLink> DrawLinks(const FaultRule& rule, const PartName& part, int servers,
                                   int workers, uint64_t& random) {
  std::vector<NetworkLink> links;
  const int drawn = static_cast<int>(UniformBelow(random, static_cast<uint64_t>(servers)));
  if (rule.halves) {
    const std::vector<bool> some_workers = DrawHalf(workers, random);
    const std::vector<bool> some_servers = DrawHalf(servers, random);
    for (int worker = 0; worker < workers; ++worker) {
      for (int server = 0; server < servers; ++server) {
        if (some_workers[worker] != some_servers[server]) links.push_back({worker, server});
      }
    }
  } else if (rule.is_server) {
    for (int worker = 0; worker < workers; ++worker) links.push_back({worker, part.index});
  } else {
    links.push_back({part.index, rule.other >= 0 ? rule.other : drawn});
  }
  return links;
}

}  // namespace

absl::StatusOr<FaultRule> ParseFaultRule(Fault::Kind kind, absl::string_view text, int servers,
                                         int workers, int stages) {
  return RuleParser(kind, text, servers, workers, stages).Parse();
}

absl::string_view FindFlag(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kLoseDisk:
      return "lose_disk";
    case Fault::Kind::kFreeze:
      return "freeze";
    case Fault::Kind::kCut:
      return "partition";
    case Fault::Kind::kReset:
      return "reset";
    case Fault::Kind::kCrowd:
      return "half_open";
    default:
      return "kill";
  }
}

std::optional<Fault::Kind> GetEnd(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kFreeze:
      return Fault::Kind::kThaw;
    case Fault::Kind::kCut:
      return Fault::Kind::kJoin;
    case Fault::Kind::kCrowd:
      return Fault::Kind::kDisperse;
    default:
      return std::nullopt;
  }
}

FaultSchedule::FaultSchedule(const Options& options) {
  uint64_t random = options.seed;
  // A separate generator, so that network rules do not change the times of other rules.
  uint64_t random_links = options.seed;
  // The stages of workers have their own generator, too, for the same reason.
  uint64_t random_stages = ~options.seed;
  for (const FaultRule& rule : options.rules) {
    const int count = rule.is_server ? options.servers : options.workers;
    const bool once = rule.every == absl::ZeroDuration();
    for (absl::Duration tick = once ? rule.at : rule.every; tick <= options.length;
         tick += rule.every) {
      // Draws a part even if the rule names one, so that a fixed index in one rule does not change
      // the times of other rules.
      const auto drawn =
          static_cast<int>(UniformBelow(random, static_cast<uint64_t>(std::max(count, 1))));
      const double shift = (UnitDouble(SplitMix64(random)) - 0.5) / 2;
      const absl::Duration at = tick + rule.every * shift;
      PartName part{rule.is_server, rule.index >= 0 ? rule.index : drawn};
      if (!rule.is_server && !IsOfLinks(rule.kind) && options.stages > 0) {
        const auto stage =
            static_cast<int>(UniformBelow(random_stages, static_cast<uint64_t>(options.stages)));
        part.stage = rule.stage >= 0 ? rule.stage : stage;
      }
      if (at <= options.length) {
        Fault fault{rule.kind, part};
        if (IsOfLinks(rule.kind)) {
          fault.links = DrawLinks(rule, part, options.servers, options.workers, random_links);
        }
        events_.push_back({at, fault});
        if (const auto end = GetEnd(rule.kind); end.has_value()) {
          fault.kind = *end;
          events_.push_back({at + rule.lasting, std::move(fault)});
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
