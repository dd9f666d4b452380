#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"
#include "security/call_admission.h"
#include "server/coordinator/checkpoint_conductor.h"
#include "server/coordinator/coordinator_store.h"
#include "server/coordinator/eviction_notifier.h"
#include "server/coordinator/job_coordinator.h"
#include "server/coordinator/resume_reader.h"
#include "server/coordinator/state_writer.h"
#include "server/model_files/model_store.h"
#include "server/parked/replies.h"
#include "server/rpc/poller.h"
#include "server/rpc/unary_call.h"
#include "storage/file_system.h"

namespace torchps {

// The gRPC shell of a JobCoordinator: decode, lock, call one method, unlock, answer. A parked call
// holds no thread, and is dropped when its caller goes away.
//
// With a directory, the coordinator outlives its process: its state is there before any answer is
// given that depends on it, and it conducts the job's checkpoints; a job that cannot be kept at all
// does not begin (state_writer.h). The directory is opened at the first call, since only the first
// server of a job is asked to coordinate; but what a job is resumed from is read from the beginning
// on (resume_reader.h), and calls are UNAVAILABLE meanwhile.
//
// Thread-safe. Outlives the completion queues it listens on.
class CoordinatorService {
 public:
  struct Options {
    uint64_t seed = 1;
    // Outlives this.
    const Clock* clock = nullptr;
    // Where the state and the checkpoints are; empty: nowhere.
    std::string directory;
    // Where the model files are; empty: in `directory`.
    std::string model_directory;
    // Outlives this; needed with a directory.
    FileSystem* files = nullptr;
    // The job in the directory goes on with other processes than before (resumed_state.h).
    bool resume = false;
    // What is in the directory may have come from a copy of it.
    bool from_copy = false;
    // Hears which file that is no part of a checkpoint has been written to the directory; on any
    // thread. May be null.
    std::function<void(const std::string& file)> stored;
    CheckpointConductor::Connect connect;
    // Decides which caller may make which call. Outlives this.
    CallAdmission* admission = nullptr;
    // Takes sentences for the user.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
  };

  explicit CoordinatorService(Options options);
  ~CoordinatorService();

  // To be registered with the ServerBuilder.
  grpc::Service* service() { return &service_; }

  // Arms the poller's queue with every method, for the server's whole life.
  void Listen(Poller* poller);

  // Lets slots die whose lease has run out, and begins the checkpoint that is due. To be called now
  // and then.
  void Tick();

  // Takes one more checkpoint where the job keeps any and has not ended with one, and waits for it
  // at most `timeout`. OK: there is nothing that is not in a checkpoint. To be called before
  // Stop(), from a thread of no call.
  absl::Status TakeLastCheckpoint(absl::Duration timeout);

  // Answers what is parked, and whatever is still to come, with UNAVAILABLE; breaks off a
  // checkpoint; stores the last state. To be called before the server shuts down. Idempotent.
  void Stop();

 private:
  using Service = Coordinator::AsyncService;
  using Answer = StateWriter::Answer;

  // Whether a call may be what makes this server the coordinator of a job that its directory has.
  // What comes from servers, or is asked by workers that miss one, may have the wrong address.
  enum class Opens { kYes, kNo };

  // Arms the poller's queue with a method that answers at once, or with one that may park.
  template <class Owner, class Request, class Response>
  void Arm(Poller* poller, RequestMethod<Owner, Request, Response> request_method,
           absl::StatusOr<Response> (JobCoordinator::*method)(const Request&, absl::Duration),
           Opens opens = Opens::kYes);
  template <class Owner, class Request, class Response>
  void Arm(Poller* poller, RequestMethod<Owner, Request, Response> request_method,
           JobCoordinator::ParkedCall (JobCoordinator::*method)(const Request&, absl::Duration,
                                                                Reply<Response>));

  // Runs `change` on the coordinator. UNAVAILABLE, DATA_LOSS and so on, without running it: there
  // is no coordinator here, and the sentence says why.
  using Change = std::function<Answer(JobCoordinator&, absl::Duration now)>;
  absl::Status Apply(const Change& change, Opens opens = Opens::kYes) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same after Stop() as well; for changes that park nothing. REQUIRES: opened.
  void MakeAnyhow(const Change& change) ABSL_LOCKS_EXCLUDED(mutex_);

  // The answer that a change returns and those that have become due, and what of the state they
  // stand on.
  struct Made {
    StateWriter::Answers ready;
    uint64_t revision = 0;
    uint64_t vital_revision = 0;
    bool stored = false;
  };
  Made Make(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Once the state is stored.
  void Give(Made made) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes what a coordinator with a directory needs. UNAVAILABLE: what the job is resumed from is
  // being read.
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The state that this coordinator goes on from, and the store that is its own from then on; none:
  // there is no job yet.
  absl::StatusOr<std::optional<CoordinatorState>> FindState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StoreModel(const UnaryCall<StoreModelRequest, StoreModelReply>::Pointer& call);
  void OnCheckpoint(uint64_t number, const absl::StatusOr<CheckpointStatus>& outcome);

  const Options options_;
  Service service_;

  Mutex mutex_;
  JobCoordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool checkpoints_fail_ ABSL_GUARDED_BY(mutex_) = false;
  bool checkpoints_nonfinite_ ABSL_GUARDED_BY(mutex_) = false;
  // Until it has found what the job is resumed from; null where it is not.
  std::unique_ptr<ResumeReader> reader_ ABSL_GUARDED_BY(mutex_);
  // Made by Open(), where there is a directory; from then on only read.
  std::unique_ptr<CoordinatorStore> store_;
  std::unique_ptr<StateWriter> writer_;
  std::unique_ptr<CheckpointConductor> conductor_;
  std::unique_ptr<ModelStore> models_;
  EvictionNotifier eviction_notifier_;
};

}  // namespace torchps
