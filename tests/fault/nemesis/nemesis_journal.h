#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Records what a slot's processes do, one process after another: the pushes they begin, the
// acknowledgements they receive, and the steps that servers report as restored. A line is in the
// file when the function returns, so it survives kill -9. Not thread-safe.
class NemesisJournal {
 public:
  // Opens `path` for appending. The process ends if the file cannot be written.
  explicit NemesisJournal(const std::string& path);
  ~NemesisJournal();
  NemesisJournal(const NemesisJournal&) = delete;
  NemesisJournal& operator=(const NemesisJournal&) = delete;

  void Start(Incarnation incarnation);
  void Greeted(int server, const HelloReply& reply);
  void Begin(Step step);
  // Records the acknowledgement of all the server's blocks except `refused`.
  void Acknowledged(int server, Step step, const std::vector<BlockId>& refused = {});
  // Records that all servers acknowledged `step` at this CLOCK_MONOTONIC time. All processes share
  // this clock.
  void Done(Step step, absl::Duration now);

 private:
  void Write(const std::string& line);

  int fd_ = -1;
};

// The expected state of the servers according to one slot's journal.
struct NemesisBook {
  struct Block {
    std::set<Step> present;  // acknowledged as applied, and not reported lost
    std::set<Step> unknown;  // begun without an acknowledgement: applied at most once
  };
  std::vector<Block> blocks = std::vector<Block>(NemesisJob::kBlocks);
  int64_t steps = 0;                 // acknowledged by all servers
  std::vector<absl::Duration> done;  // the times of Done(), in order
  int64_t acknowledged = 0;          // (step, block) pairs that were acknowledged
  int64_t rolled_back = 0;           // part of `acknowledged` that a restarted server reported lost
  int64_t refused = 0;               // (step, block) pairs that were refused as too old
  int64_t incarnations = 0;
  int64_t restored_lives = 0;  // server restarts that the slot noticed
  // Errors of servers: a step lost without a restart, or lost despite a complete log.
  std::vector<std::string> broken_promises;

  static NemesisBook Read(const std::string& path, const BlockMap& map);
};

}  // namespace torchps
