#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "tests/fault/nemesis/nemesis_stalls.h"
#include "tests/testing/program.h"
#include "torchps/common/clock.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/tools/drill/fault_proxy.h"
#include "torchps/tools/drill/recovery_watch.h"

namespace torchps {

// Runs the processes of a NemesisJob and the network between them, and injects faults into both.
// Restarts processes that die. Records for each fault the affected slots and the duration. Errors
// are failures of the test that owns this object. Not thread-safe.
class NemesisCluster {
 public:
  // Kinds of faults. Some network cuts end before the processes detect them, others later.
  enum class Blow {
    kKillWorker,
    kKillServer,
    kSlowReturn,  // kill a server that then reads slowly when it restarts
    kFreezeWorker,
    kFreezeServer,
    kCutLink,        // one worker from one server
    kCutServer,      // one server from all workers
    kCutHalves,      // one half of the processes from the other
    kStartInCut,     // kill a worker, and cut it from one server while it restarts
    kStartInFreeze,  // kill a worker, and freeze a server while it restarts
    kLoseDisk,       // kill a server and remove its directory, once the copies are complete
  };
  static constexpr int kBlows = 11;

  // Kinds of worker processes.
  enum class Workers {
    kPushers,        // nemesis_pusher.h
    kCopiedPushers,  // like kPushers, with durability.copies, so that servers may lose their disks
    kBatchPushers,   // like kPushers, with whole batches
    kLinkedPushers,  // like kPushers, with gradients from a device (nemesis_device.h)
    kWhole,          // nemesis_whole_worker_main.cc: host, gradients in shared memory
    kWholeLinked,    // on a device made of host memory
    kWholeEncoding,  // like kWholeLinked, and the device encodes the gradients
  };

  struct Options {
    DurabilitySpec::Level level = DurabilitySpec::NONE;
    std::string folder;
    uint64_t seed = 1;
    Workers workers = Workers::kPushers;
    // One in four freezes lasts 10 to 30 s, longer than the time after which a client suspects that
    // a silent server is no torchps server. The others last up to 1.5 s.
    bool long_freezes = false;
  };

  // Starts all processes.
  explicit NemesisCluster(Options options);

  // Ends faults that are due to end, resets connections now and then, and restarts dead processes.
  // Returns false if a process ended with an unexpected exit code.
  bool Supervise();

  // Hits a random server or worker. Does nothing if that process is down.
  void Strike(Blow blow);
  // Ends all current faults and stops the connection resets.
  void Heal();

  // Waits until each worker trains.
  void AwaitTraining();
  void StopWorkers();
  void StopServers();

  JobStatus StatusOfJob();
  // Returns the servers' current values, by block, in units (NemesisJob::Unit).
  std::vector<std::vector<float>> Values();
  std::vector<NemesisBook> Books() const;

  // True if the workers' devices have links that fail.
  bool has_links() const;
  bool has_copies() const { return options_.workers == Workers::kCopiedPushers; }
  const NemesisStalls& stalls() const { return stalls_; }
  // Number of workers that ended because their device's link failed.
  int broken_links() const { return broken_links_; }
  absl::Duration now() const { return clock_.Now(); }
  // Returns one line that counts the faults.
  std::string Tally() const;

 private:
  // Holds a process that is restarted when it dies.
  struct Part {
    Part(bool server, int number) : is_server(server), index(number) {}
    std::string name() const;
    bool is_server;
    int index;
    std::unique_ptr<Program> program;
    int fault = -1;          // the current fault's number; -1: none
    bool is_frozen = false;  // until `thaw_at`
    absl::Duration thaw_at = absl::InfiniteDuration();
    bool reads_slowly = false;                         // after the next restart
    bool loses_disk = false;                           // before the next restart
    std::unique_ptr<ParameterService::Stub> returned;  // set until the restarted server serves
  };
  // Links that are cut until a time.
  struct Cut {
    std::vector<NetworkLink> links;
    int fault;
    absl::Duration until;
  };

  void Launch(Part& part);
  std::vector<std::string> ServerFlags(Part& part);
  std::vector<std::string> WorkerCommand(SlotId slot);
  void Kill(Part& part, bool slow_return);
  void Freeze(Part& part);
  void Thaw(Part& part);
  void Sever(std::vector<NetworkLink> links);
  void ResetConnections();
  // Ends the server's fault once it restarted and restored the job.
  void LookAtReturned(Part& part);
  // Notes now and then whether the copies are complete.
  void LookAtCopies();
  int BeginFault(const Part& part);

  std::string GetJournal(SlotId slot) const;

  const Options options_;
  const SteadyClock clock_;
  uint64_t random_;
  uint64_t device_random_;
  std::vector<std::string> addresses_;
  Relays relays_;
  std::vector<std::string> ways_;  // by worker: the relays, as an environment variable
  std::vector<Part> parts_;        // servers first
  std::vector<Cut> cuts_;
  absl::Duration next_reset_;
  BackupWatch copies_;
  bool copies_are_whole_ = false;
  absl::Duration next_look_at_copies_;
  NemesisStalls stalls_;
  int blows_[kBlows] = {};
  int resets_ = 0;
  int lost_slots_ = 0;
  int broken_links_ = 0;
};

}  // namespace torchps
