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
#include "grpcpp/grpcpp.h"
#include "torchps/common/clock.h"
#include "torchps/common/log_line.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/coordinator.grpc.pb.h"
#include "torchps/security/call_admission.h"
#include "torchps/server/coordinator/checkpoint_conductor.h"
#include "torchps/server/coordinator/coordinator_store.h"
#include "torchps/server/coordinator/eviction_notifier.h"
#include "torchps/server/coordinator/job_coordinator.h"
#include "torchps/server/coordinator/model_store.h"
#include "torchps/server/coordinator/resumed_state.h"
#include "torchps/server/coordinator/state_writer.h"
#include "torchps/server/parked/replies.h"
#include "torchps/server/rpc/poller.h"
#include "torchps/server/rpc/unary_call.h"
#include "torchps/storage/file_system.h"

namespace torchps {

// Exposes a JobCoordinator over gRPC. Each call locks, runs one method, unlocks and answers. Parked
// calls do not hold a thread and are dropped when the caller disconnects.
//
// If there is a directory, a restarted process continues as the coordinator of the same job. The
// service stores the coordinator's state before it sends an answer that depends on this state, and
// conducts the job's checkpoints. A job that cannot be stored does not begin (state_writer.h).
// Every server has this service, but only the first server of a job is asked to coordinate. So the
// first call opens the directory. If `resume` is set, Listen() begins to read the directory
// (ResumeReader), and calls return UNAVAILABLE until it is read.
//
// Thread-safe. Must outlive the completion queues that it listens on.
class CoordinatorService {
 public:
  struct Options {
    uint64_t seed = 1;
    // Must outlive this.
    const Clock* clock = nullptr;
    // Directory of the state and the checkpoints; may be empty.
    std::string directory;
    // Directory of the model files; empty means `directory`.
    std::string model_directory;
    // Must outlive this. Required with a directory.
    FileSystem* files = nullptr;
    // Resume the job in the directory with new processes (resumed_state.h).
    bool resume = false;
    // The directory may have been fetched from a backup copy (CoordinatedJob::Return::kFromCopy).
    bool from_copy = false;
    // Called on any thread with the name of each new file in the directory that is not part of a
    // checkpoint. May be null.
    std::function<void(const std::string& file)> stored;
    CheckpointConductor::Connect connect;
    // Decides if a caller may make a call. Must outlive this.
    CallAdmission* admission = nullptr;
    // Receives messages for the user.
    LogLine log = IgnoreLine;
  };

  explicit CoordinatorService(Options options);
  ~CoordinatorService();

  // The service to register with the ServerBuilder.
  grpc::Service* service() { return &service_; }

  // Arms the poller's queue with all methods, for the server's lifetime.
  void Listen(Poller* poller);

  // Expires slots and begins the checkpoint that is due. Must be called periodically.
  void Tick();

  // Takes one more checkpoint if JobCoordinator::wants_last_checkpoint() is true, and blocks until
  // it is complete. Returns OK also if no checkpoint is needed, DEADLINE_EXCEEDED after `timeout`,
  // and otherwise the checkpoint's error. Must be called before Stop(), and not on a thread that
  // handles calls.
  absl::Status TakeLastCheckpoint(absl::Duration timeout);

  // Answers parked and future calls with UNAVAILABLE, cancels a running checkpoint and stores the
  // last state. Must be called before the server shuts down. Idempotent.
  void Stop();

 private:
  using Service = Coordinator::AsyncService;
  using Answer = StateWriter::Answer;

  // States if a call may open the directory and so make this server the coordinator. RegisterServer
  // and LocateServers may not, because their callers may have the address of a wrong server.
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

  // Answers the call with the result of `method`.
  template <class Request, class Response>
  void AnswerBy(absl::StatusOr<Response> (JobCoordinator::*method)(const Request&, absl::Duration),
                const std::shared_ptr<UnaryCall<Request, Response>>& call,
                Opens opens = Opens::kYes);

  // Runs `change` on the coordinator. Returns an error without running it if there is no
  // coordinator here; the message gives the reason.
  using Change = std::function<Answer(JobCoordinator&, absl::Duration now)>;
  absl::Status Apply(const Change& change, Opens opens = Opens::kYes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Same as Apply(), but also works after Stop(). For changes that do not park calls. REQUIRES:
  // Open() succeeded.
  void MakeAnyhow(const Change& change) ABSL_LOCKS_EXCLUDED(mutex_);

  // The answers that a change made due, and the revisions that they depend on.
  struct Made {
    StateWriter::Answers ready;
    uint64_t revision = 0;
    uint64_t vital_revision = 0;
    bool stored = false;
  };
  Made Make(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the answers once the state is stored.
  void Give(Made made) ABSL_LOCKS_EXCLUDED(mutex_);

  // Opens the directory and creates the members below. Returns UNAVAILABLE while the state to
  // resume from is being read.
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the state to continue from, and sets store_. Returns nullopt if there is no job yet.
  absl::StatusOr<std::optional<CoordinatorState>> FindState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StoreModel(const UnaryCall<StoreModelRequest, StoreModelReply>::Pointer& call);
  void ReportEvaluation(
      const UnaryCall<ReportEvaluationRequest, ReportEvaluationReply>::Pointer& call);
  void OnCheckpoint(uint64_t number, const absl::StatusOr<CheckpointStatus>& outcome);

  const Options options_;
  Service service_;

  Mutex mutex_;
  JobCoordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool checkpoints_fail_ ABSL_GUARDED_BY(mutex_) = false;
  bool checkpoints_nonfinite_ ABSL_GUARDED_BY(mutex_) = false;
  // coordinator.state was damaged when it was loaded.
  bool state_was_damaged_ = false;
  // Exists until the state to resume from is found; null without resume.
  std::unique_ptr<ResumeReader> reader_ ABSL_GUARDED_BY(mutex_);
  // Created by Open() if there is a directory. Constant after that.
  std::unique_ptr<CoordinatorStore> store_;
  std::unique_ptr<StateWriter> writer_;
  std::unique_ptr<CheckpointConductor> conductor_;
  std::unique_ptr<ModelStore> models_;
  EvictionNotifier eviction_notifier_;
};

}  // namespace torchps
