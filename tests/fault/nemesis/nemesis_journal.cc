#include "tests/fault/nemesis/nemesis_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {

NemesisJournal::NemesisJournal(const std::string& path)
    : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  TPS_CHECK(fd_ >= 0, "the journal cannot be opened");
}

NemesisJournal::~NemesisJournal() { close(fd_); }

void NemesisJournal::Write(const std::string& line) {
  TPS_CHECK(write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
            "the journal cannot be written");
}

void NemesisJournal::Start(Incarnation incarnation) {
  Write(absl::StrCat("start ", incarnation, "\n"));
}

void NemesisJournal::Greeted(int server, const HelloReply& reply) {
  std::string line = absl::StrCat("life ", server, " ", reply.server_incarnation(), " ",
                                  reply.restored().from_log() ? 1 : 0);
  for (const int64_t step : reply.restored().slot_step()) absl::StrAppend(&line, " ", step);
  Write(line + "\n");
}

void NemesisJournal::Begin(Step step) { Write(absl::StrCat("begin ", step, "\n")); }

void NemesisJournal::Acknowledged(int server, Step step, const std::vector<BlockId>& refused) {
  std::string line = absl::StrCat("ack ", server, " ", step);
  for (const BlockId block : refused) absl::StrAppend(&line, " ", block);
  Write(line + "\n");
}

void NemesisJournal::Done(Step step, absl::Duration now) {
  Write(absl::StrCat("done ", step, " ", absl::ToInt64Microseconds(now), "\n"));
}

NemesisBook NemesisBook::Read(const std::string& path, const BlockMap& map) {
  NemesisBook book;
  std::map<int, uint64_t> incarnations;
  Step in_flight = 0;
  std::set<int> missing;  // servers without an acknowledgement of the step
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    if (file.eof()) break;  // an incomplete line: the process was killed
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "start") {
      ++book.incarnations;
      in_flight = 0;
    } else if (word == "begin") {
      line >> in_flight;
      missing.clear();
      for (int server = 0; server < map.servers(); ++server) missing.insert(server);
      for (Block& block : book.blocks) block.unknown.insert(in_flight);
    } else if (word == "ack") {
      int server = 0;
      Step step = 0;
      line >> server >> step;
      std::set<BlockId> refused;
      for (BlockId id = 0; line >> id;) refused.insert(id);
      book.refused += static_cast<int64_t>(refused.size());
      for (const BlockId id : map.owned_by(server)) {
        book.blocks[id].unknown.erase(step);
        if (refused.count(id) > 0) continue;
        if (!book.blocks[id].present.insert(step).second) {
          book.broken_promises.push_back(absl::StrCat("step ", step, " acknowledged twice"));
        }
        ++book.acknowledged;
      }
      missing.erase(server);
      if (missing.empty()) {
        ++book.steps;
        in_flight = 0;
      }
    } else if (word == "done") {
      Step step = 0;
      int64_t microseconds = 0;
      line >> step >> microseconds;
      book.done.push_back(absl::Microseconds(microseconds));
    } else if (word == "life") {
      int server = 0;
      uint64_t life = 0;
      int from_log = 0;
      line >> server >> life >> from_log;
      const bool same = incarnations[server] == life;
      const bool first = incarnations[server] == 0;
      incarnations[server] = life;
      if (!same && !first) ++book.restored_lives;
      for (const BlockId id : map.owned_by(server)) {
        Step has = 0;
        const bool told = static_cast<bool>(line >> has);
        // A server reports steps only if it has restored the job. Its first incarnation has not.
        if (!told && (same || first)) continue;
        Block& block = book.blocks[id];
        const auto lost = block.present.upper_bound(has);
        const int64_t count = std::distance(lost, block.present.end());
        book.rolled_back += count;
        if (count > 0 && (same || from_log != 0)) {
          book.broken_promises.push_back(absl::StrCat(
              "server ", server,
              same ? " lost steps without a restart" : " reported a complete log", ", but block ",
              id, " is at step ", has, " and step ", *block.present.rbegin(), " was acknowledged"));
        }
        block.present.erase(lost, block.present.end());
        // The block does not contain the unanswered steps above `has`. Only one of these pushes can
        // still arrive: the push in flight, which the process repeats.
        const bool kept = in_flight > has && block.unknown.count(in_flight) > 0;
        block.unknown.erase(block.unknown.upper_bound(has), block.unknown.end());
        if (kept) block.unknown.insert(in_flight);
      }
    }
  }
  return book;
}

}  // namespace torchps
