#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.grpc.pb.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "tests/fault/nemesis/nemesis_stalls.h"
#include "tests/testing/program.h"
#include "tools/drill/relays.h"

namespace torchps {

// The processes of a nemesis' job, the network between them, and what is done to both. What dies is
// started again. Notes for each fault whom it hit and for how long. What must not happen is a
// failure of the test that owns it. Not thread-safe.
class NemesisCluster {
 public:
  // What a blow is. The network's last for longer than it takes to notice, or not so long.
  enum class Blow {
    kKillWorker,
    kKillServer,
    kSlowReturn,  // the same, and it reads slowly when it comes back
    kFreezeWorker,
    kFreezeServer,
    kCutLink,    // a worker from a server
    kCutServer,  // a server from all workers
    kCutHalves,  // a half of all from the other
  };
  static constexpr int kBlows = 8;

  // What the slots' processes are.
  enum class Workers {
    kPushers,        // nemesis_pusher.h
    kBatchPushers,   // of a job that collects whole batches
    kLinkedPushers,  // whose gradients come from a device (nemesis_device.h)
    kWhole,          // nemesis_whole_worker_main.cc: on the host, gradients in shared memory
    kWholeLinked,    // on a device made of host memory
    kWholeEncoding,  // which encodes the gradients, too
  };

  struct Options {
    DurabilitySpec::Level level = DurabilitySpec::NONE;
    std::string folder;
    uint64_t seed = 1;
    Workers workers = Workers::kPushers;
  };

  // Starts them all.
  explicit NemesisCluster(Options options);

  // Ends what is due to end, breaks connections now and then, and starts again what has died; false
  // if something ended as it must not.
  bool Supervise();

  // On a part that is drawn; one that is down is spared.
  void Strike(Blow blow);
  // No fault that lasts does so any longer, and connections stay whole.
  void Heal();

  // Each waits until the worker trains, or they have all ended as they should.
  void AwaitTraining();
  void StopWorkers();
  void StopServers();

  JobStatus StatusOfJob();
  // What is in the servers now, by block, in units.
  std::vector<std::vector<float>> Values();
  std::vector<NemesisBook> Books() const;

  // Devices have links, which fail.
  bool has_links() const;
  const NemesisStalls& stalls() const { return stalls_; }
  // Workers that ended since their device's link had failed.
  int broken_links() const { return broken_links_; }
  absl::Duration now() const { return clock_.Now(); }
  // One line.
  std::string Tally() const;

 private:
  // A process that is started again when it dies.
  struct Part {
    Part(bool server, int number) : is_server(server), index(number) {}
    std::string name() const;
    bool is_server;
    int index;
    std::unique_ptr<Program> program;
    int fault = -1;          // that keeps it away; -1: none
    bool is_frozen = false;  // until then
    absl::Duration thaw_at = absl::InfiniteDuration();
    bool reads_slowly = false;                         // in its next life
    std::unique_ptr<ParameterService::Stub> returned;  // not known to serve yet
  };
  // Ways on which nothing passes.
  struct Cut {
    std::vector<NetworkLink> links;
    int fault;
    absl::Duration until;
  };

  void Launch(Part& part);
  std::vector<std::string> WorkerCommand(SlotId slot);
  void Kill(Part& part, bool slow_return);
  void Freeze(Part& part);
  void Thaw(Part& part);
  void Sever(std::vector<NetworkLink> links);
  void ResetConnections();
  // A server that has come back and brought its job back is not away any more.
  void LookAtReturned(Part& part);
  int BeginFault(const Part& part);

  std::string GetJournal(SlotId slot) const;

  const Options options_;
  const SteadyClock clock_;
  uint64_t random_;
  uint64_t device_random_;
  std::vector<std::string> addresses_;
  Relays relays_;
  std::vector<std::string> ways_;  // of each worker to the servers, for its environment
  std::vector<Part> parts_;        // servers first
  std::vector<Cut> cuts_;
  absl::Duration next_reset_;
  NemesisStalls stalls_;
  int blows_[kBlows] = {};
  int resets_ = 0;
  int lost_slots_ = 0;
  int broken_links_ = 0;
};

}  // namespace torchps
