#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/simulation/accounting_model.h"
#include "tests/simulation/network.h"
#include "tests/simulation/planted_faults.h"
#include "tests/simulation/process.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/server_model.h"
#include "tests/simulation/sim_disk.h"
#include "tests/simulation/sim_storage.h"
#include "tests/simulation/world.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/server/backup/backup_peer.h"
#include "torchps/server/backup/backup_store.h"
#include "torchps/server/coordinator/coordinator_store.h"
#include "torchps/server/coordinator/job_coordinator.h"
#include "torchps/server/coordinator/state_writer.h"
#include "torchps/server/job/hosted_job.h"
#include "torchps/transport/frame_codec.h"

namespace torchps::simulation {

// One block in the result of a pull.
struct PulledBlock {
  BlockId block = 0;
  Version version = 0;
  bool unchanged = false;
};
// Result of a pull.
struct Pulled {
  Step min_clock = 0;
  std::vector<PulledBlock> blocks;
};

// Simulates a ps_server. Runs the real HostedJob with its storage and, on server 0, the real
// JobCoordinator with its store, and replaces gRPC and all threads. After each call it compares the
// state with the models.
class SimServer {
 public:
  // `disk` belongs to this server or is shared by all servers.
  SimServer(World* world, Network* network, const Scenario* scenario, Fault fault, int index,
            std::shared_ptr<FaultyFileSystem> disk);

  Process* process() { return &process_; }
  const Process* process() const { return &process_; }
  int index() const { return index_; }
  const ServerModel& model() const { return model_; }
  const AccountingModel* accounting() const { return accounting_.get(); }

  // Sets the callback for slots that a later incarnation took over on this server. Call once,
  // before anything starts.
  using OnTakeover = std::function<void(SimServer*, Incarnation before, Incarnation now)>;
  void SetOnTakeover(OnTakeover on_takeover) { on_takeover_ = std::move(on_takeover); }
  // Sets all servers, in order. Call once, before anything starts.
  void SetPeers(std::vector<SimServer*> peers) { peers_ = std::move(peers); }

  void Start();
  // Kills the process now, or the whole machine if `power_cut`. The server does not send anything
  // after this.
  void Kill(bool power_cut);
  // Kills the machine, and replaces its disk or overwrites a sector of a copied file. Does nothing
  // unless the other servers have copies of everything on the disk, and their own copies are
  // complete.
  // REQUIRES: index() is not 0, which has the coordinator.
  void LoseDisk();
  // The copies of other servers' files. REQUIRES: the process is alive.
  BackupStore* backup_store() { return backup_store_.get(); }
  // Makes the disk full for this time, also after a restart.
  void FillDisk(absl::Duration duration) { disk_.Fill(duration); }
  // Leaves room on the disk for the next checkpoint and for `log_room` bytes of push logs. Does
  // nothing before the first checkpoint.
  void LimitDisk(int64_t log_room);
  // True if the previous process is completely gone.
  bool CanStart() const { return !process_.alive() && !ending_; }
  // True if a restart would still restore the model.
  bool MayDie() const;
  // The current incarnation.
  uint64_t server_incarnation() const { return server_incarnation_; }
  int deaths() const { return deaths_; }
  int lost_disks() const { return lost_disks_; }
  // True if a restarted coordinator restored an older state than the one on which its last answers
  // were based.
  bool has_forgotten() const { return has_forgotten_; }

  // Calls of the parameter service. A push has one frame for each block; Push() takes frame `index`
  // of `count`.
  using Arrival = Network::ArrivalPointer;
  void Hello(const Arrival& arrival, const HelloRequest& request);
  void Push(const Arrival& arrival, const PushHeader& header, size_t index, size_t count);
  void Pull(const Arrival& arrival, const PullRequest& request);
  void Renew(const Arrival& arrival, const RenewRequest& request);
  void Leave(const Arrival& arrival, const LeaveRequest& request);

  void GetServerStatus(const Arrival& arrival);
  void WriteShard(const Arrival& arrival, const WriteShardRequest& request);
  void CommitCheckpoint(const Arrival& arrival, const CommitCheckpointRequest& request);

  // Calls of the coordinator. Prompt() makes a call that the coordinator answers without parking
  // it. REQUIRES: index() is 0.
  template <typename Request, typename Response>
  void Prompt(const Arrival& arrival,
              absl::StatusOr<Response> (JobCoordinator::*method)(const Request&, absl::Duration),
              const Request& request) {
    const absl::StatusOr<Response> response = (coordinator_.get()->*method)(request, world_->now());
    Hold([arrival, response](const StateWriter::Kept& kept) {
      arrival->Answer(kept.job.ok() ? response : absl::StatusOr<Response>(kept.job));
    });
    AfterCoordination();
  }
  void Join(const Arrival& arrival, const JoinRequest& request);
  void AwaitStart(const Arrival& arrival, const AwaitStartRequest& request);
  void NextWork(const Arrival& arrival, const NextWorkRequest& request);
  // Plants a fault: counts a dead worker's lease as returned.
  void CountAsUsed(const NextWorkRequest& request);
  // Returns the coordinator's status.
  JobStatus Status();

 private:
  using Answer = StateWriter::Answer;
  // A checkpoint in progress, like CheckpointConductor's.
  struct Conducted {
    JobCoordinator::CheckpointPlan plan;
    std::vector<ShardInfo> shards;
    CommitCheckpointRequest commit;
    int left = 0;
    bool over = false;
    absl::Duration give_up;  // when to stop repeating the current commit
  };
  using ConductedPointer = std::shared_ptr<Conducted>;

  void Tick();
  // Makes the updates that are due.
  void MakeDueUpdates();
  // These functions plant the run's fault. Each does nothing if the fault is of another kind.
  // PlantInPush returns the changed push. PlantInAnswer returns a false answer to frame `index` of
  // `count`, or nullopt. PlantInUpdates changes the updates made since the last call, and
  // PlantInReturn changes a restored job.
  PushHeader PlantInPush(HostedJob* job, const PushHeader& header);
  std::optional<PushReply> PlantInAnswer(const PushHeader& header, size_t index,
                                         size_t count) const;
  void PlantInUpdates();
  void PlantInReturn();
  void StartCoordinator();
  void FinishKill(bool power_cut);
  absl::StatusOr<HelloReply> TakeHello(const HelloRequest& request);
  absl::StatusOr<HostedJob*> JobFor(uint64_t life) const;
  void SendBlocks(const Arrival& arrival, HostedJob* job, const PullRequest& request,
                  std::shared_ptr<Pulled> pulled);
  // Schedules WriteLog() after a short time.
  // Asks the coordinator for a checkpoint if the log needs one.
  void AskForCheckpoint();
  void WriteLogSoon();
  void WriteLog();
  // Returns the server that keeps the backup, or null.
  std::shared_ptr<BackupPeer> MakePeer();
  // Copies files to the server that keeps the backup, now and in a short time.
  void Copy();
  void CopySoon();
  // Checks that the server keeps the shard of at most one failed checkpoint.
  void CheckFailedShards();

  // Holds an answer of the coordinator until the state behind it is saved.
  void Hold(Answer answer) { held_.push_back(std::move(answer)); }
  void GiveHeld(const StateWriter::Kept& kept);
  // Collects the coordinator's answers and schedules saving the state.
  void AfterCoordination();
  void KeepState();
  void Conduct(const JobCoordinator::CheckpointPlan& plan);
  void WriteShards(const ConductedPointer& conducted);
  void OnShards(const ConductedPointer& conducted);
  void CommitAll(const ConductedPointer& conducted, bool everywhere);
  void Commit(const ConductedPointer& conducted, int server);
  void EndCheckpoint(const ConductedPointer& conducted, const absl::Status& status);

  World* const world_;
  Network* const network_;
  const Scenario* const scenario_;
  const Fault fault_;
  const int index_;
  Process process_;
  ServerModel model_;
  SimDisk disk_;
  CollectedPushes collected_;
  bool has_died_ = false;  // and accepted no Hello since
  std::vector<SimServer*> peers_;
  OnTakeover on_takeover_;
  std::unique_ptr<AccountingModel> accounting_;
  int deaths_ = 0;
  int lost_disks_ = 0;
  // What happens to the disk at the end of Kill().
  enum class DiskLoss { kNone, kSector, kAll };
  DiskLoss disk_loss_ = DiskLoss::kNone;
  // Overwrites a sector of a file that another server has copied completely. Returns the file's
  // path; empty if there is no such file.
  std::string OverwriteSector();
  // Since the last loss of a disk: this server has sent a piece of a file, and then everything.
  bool has_copied_ = false;
  bool has_copied_all_ = false;
  bool has_committed_ = false;  // a checkpoint, in any incarnation
  bool ending_ = false;
  uint64_t told_revision_ = 0;  // last state revision behind sent answers, in any incarnation
  bool has_forgotten_ = false;
  // Last revision written, and last revision synced, in any incarnation. The next process must find
  // the written one, or the synced one after a power cut.
  uint64_t found_after_kill_ = 0;
  uint64_t found_after_power_cut_ = 0;

  // State of the current process.
  uint64_t server_incarnation_ = 0;
  std::unique_ptr<SimStorage> storage_;
  std::unique_ptr<HostedJob> job_;
  std::unique_ptr<CoordinatorStore> store_;
  std::unique_ptr<JobCoordinator> coordinator_;
  std::unique_ptr<BackupStore> backup_store_;
  bool copying_ = false;
  bool writing_log_ = false;
  absl::Duration next_ask_;
  bool keeping_state_ = false;
  bool has_state_ = false;         // a state is synced
  bool has_own_state_ = false;     // a state of this process is synced
  bool state_is_refused_ = false;  // the last write failed; retried after a pause
  uint64_t synced_revision_ = 0;
  absl::Duration last_sync_;
  std::vector<Answer> held_;
  uint64_t writing_shard_ = 0;
  std::map<uint64_t, ShardInfo> written_shards_;
  uint64_t last_wait_ = 0;
  uint64_t early_updates_ = 0;  // that the server counted at the last PlantInUpdates()
};

}  // namespace torchps::simulation
