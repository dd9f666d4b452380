#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "proto/parameter_service.pb.h"
#include "tests/fault/nemesis/nemesis_job.h"

namespace torchps {

// What a slot's processes, one after the other, write down before they go on: which pushes they
// begin, which a server has acknowledged, and what a server says that it still has. A line is in
// the file when its function has returned, and outlives kill -9. Not thread-safe.
class NemesisJournal {
 public:
  // Appends; a file that cannot be written ends the process.
  explicit NemesisJournal(const std::string& path);
  ~NemesisJournal();
  NemesisJournal(const NemesisJournal&) = delete;
  NemesisJournal& operator=(const NemesisJournal&) = delete;

  void Start(Incarnation incarnation);
  void Greeted(int server, const HelloReply& reply);
  void Begin(Step step);
  // But for the blocks that have refused it.
  void Acknowledged(int server, Step step, const std::vector<BlockId>& refused = {});
  // By all servers, at that time of CLOCK_MONOTONIC, which is one for all processes.
  void Done(Step step, absl::Duration now);

 private:
  void Write(const std::string& line);

  int fd_ = -1;
};

// What must be in the servers by one slot's journal.
struct NemesisBook {
  struct Block {
    std::set<Step> present;  // acknowledged as applied, and not told to be lost
    std::set<Step> unknown;  // begun, the answer never written down: applied once or not at all
  };
  std::vector<Block> blocks = std::vector<Block>(NemesisJob::kBlocks);
  int64_t steps = 0;                 // acknowledged by all servers
  std::vector<absl::Duration> done;  // when each of them was, in order
  int64_t acknowledged = 0;          // (step, block), each time a process was told so
  int64_t rolled_back = 0;           // of these, told to be lost by a server that came back
  int64_t refused = 0;               // (step, block), too old to be applied
  int64_t incarnations = 0;
  int64_t restored_lives = 0;  // lives of servers, after the first, that the slot has seen
  // What no server may do: forget within one life, or forget anything and say that it has not.
  std::vector<std::string> broken_promises;

  static NemesisBook Read(const std::string& path, const BlockMap& map);
};

}  // namespace torchps
