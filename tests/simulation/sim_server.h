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
#include "proto/coordinator.pb.h"
#include "proto/parameter_service.pb.h"
#include "server/coordinator/coordinator_store.h"
#include "server/coordinator/job_coordinator.h"
#include "server/coordinator/state_writer.h"
#include "server/job/hosted_job.h"
#include "tests/simulation/accounting_model.h"
#include "tests/simulation/network.h"
#include "tests/simulation/planted_faults.h"
#include "tests/simulation/process.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/server_model.h"
#include "tests/simulation/sim_disk.h"
#include "tests/simulation/sim_storage.h"
#include "tests/simulation/world.h"
#include "wire/frame_codec.h"

namespace torchps::simulation {

// What a pull brings.
struct PulledBlock {
  BlockId block = 0;
  Version version = 0;
  bool unchanged = false;
};
struct Pulled {
  Step min_clock = 0;
  std::vector<PulledBlock> blocks;
};

// A ps_server: the real HostedJob with what it keeps and, at server 0, the real JobCoordinator with
// its store, in a shell that plays the part of gRPC and of all threads. After each call the models
// are compared with what has become of it.
class SimServer {
 public:
  // `disk` is its own, or that of all servers.
  SimServer(World* world, Network* network, const Scenario* scenario, Fault fault, int index,
            std::shared_ptr<FaultyFileSystem> disk);

  Process* process() { return &process_; }
  const Process* process() const { return &process_; }
  int index() const { return index_; }
  const ServerModel& model() const { return model_; }
  const AccountingModel* accounting() const { return accounting_.get(); }

  // Hears of each slot that a later incarnation has taken over here. Once, before anything starts.
  using OnTakeover = std::function<void(SimServer*, Incarnation before, Incarnation now)>;
  void SetOnTakeover(OnTakeover on_takeover) { on_takeover_ = std::move(on_takeover); }
  // All servers, in their order; once, before anything starts.
  void SetPeers(std::vector<SimServer*> peers) { peers_ = std::move(peers); }

  void Start();
  // The process ends here and now; with `power_cut` its machine does. Nothing else is said by it.
  void Kill(bool power_cut);
  // Its disk takes nothing for a while, whoever of its lives asks.
  void FillDisk(absl::Duration duration) { disk_.Fill(duration); }
  // Nothing of an earlier life is left over.
  bool CanStart() const { return !process_.alive() && !ending_; }
  // A death now would not take the model away for good.
  bool MayDie() const;
  // Of this life.
  uint64_t server_incarnation() const { return server_incarnation_; }
  int deaths() const { return deaths_; }
  // The coordinator has come back with less than it had told.
  bool has_forgotten() const { return has_forgotten_; }

  // The parameter service. A push is one frame for each block, told which of how many it is.
  using Arrival = Network::ArrivalPointer;
  void Hello(const Arrival& arrival, const HelloRequest& request);
  void Push(const Arrival& arrival, const PushHeader& header, size_t index, size_t count);
  void Pull(const Arrival& arrival, const PullRequest& request);
  void Renew(const Arrival& arrival, const RenewRequest& request);
  void Leave(const Arrival& arrival, const LeaveRequest& request);

  void GetServerStatus(const Arrival& arrival);
  void WriteShard(const Arrival& arrival, const WriteShardRequest& request);
  void CommitCheckpoint(const Arrival& arrival, const CommitCheckpointRequest& request);

  // The coordinator's. REQUIRES: index() is 0.
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
  // A fault: what a dead worker had in hand is taken for handed in.
  void CountAsUsed(const NextWorkRequest& request);
  // As the coordinator tells it.
  JobStatus Status();

 private:
  using Answer = StateWriter::Answer;
  // A checkpoint under way, as CheckpointConductor takes it.
  struct Conducted {
    JobCoordinator::CheckpointPlan plan;
    std::vector<ShardInfo> shards;
    CommitCheckpointRequest commit;
    int left = 0;
    bool over = false;
    absl::Duration give_up;  // of the present round of commits
  };
  using ConductedPointer = std::shared_ptr<Conducted>;

  void Tick();
  // Makes the updates that time has made due.
  void MakeDueUpdates();
  // These plant the fault of this run, if it is theirs. PlantInPush returns the push that the
  // product gets. PlantInAnswer returns an answer to frame `index` of `count`; none: the product
  // answers. PlantInUpdates changes updates made since the last call, PlantInReturn a job that was
  // restored.
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
  // What the log has to write is written in a while.
  void WriteLogSoon();
  void WriteLog();
  // Of checkpoints that failed a server keeps the shard of one at most.
  void CheckFailedShards();

  // An answer of the coordinator: given when what it stands on is kept.
  void Hold(Answer answer) { held_.push_back(std::move(answer)); }
  void GiveHeld(const StateWriter::Kept& kept);
  // Takes the coordinator's answers, keeps its state in a while.
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
  bool has_died_ = false;  // and has no job again yet
  std::vector<SimServer*> peers_;
  OnTakeover on_takeover_;
  std::unique_ptr<AccountingModel> accounting_;
  int deaths_ = 0;
  bool has_committed_ = false;  // in any life
  bool ending_ = false;
  uint64_t told_revision_ = 0;  // of the coordinator's state, in any life
  bool has_forgotten_ = false;

  // Of the present life.
  uint64_t server_incarnation_ = 0;
  std::unique_ptr<SimStorage> storage_;
  std::unique_ptr<HostedJob> job_;
  std::unique_ptr<CoordinatorStore> store_;
  std::unique_ptr<JobCoordinator> coordinator_;
  bool writing_log_ = false;
  bool keeping_state_ = false;
  bool has_state_ = false;         // synced
  bool has_own_state_ = false;     // ... by this life
  bool state_is_refused_ = false;  // and is tried again in a while
  uint64_t synced_revision_ = 0;
  absl::Duration last_sync_;
  std::vector<Answer> held_;
  uint64_t writing_shard_ = 0;
  std::map<uint64_t, ShardInfo> written_shards_;
  uint64_t last_wait_ = 0;
  uint64_t early_updates_ = 0;  // of blocks
};

}  // namespace torchps::simulation
