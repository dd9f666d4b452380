#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/block_map.h"
#include "torchps/common/mutex.h"
#include "torchps/proto/parameter_service.grpc.pb.h"

namespace torchps {

// Scripted parameter server for tests: it does not enforce rules or apply gradients, but records
// the calls. Pulls from shared memory are always granted. Serves block b with each element equal to
// b, at version 100 + b. Thread-safe.
class FakeParameterServer final : public ParameterService::Service {
 public:
  // The fault of one call. Calls without a fault succeed.
  struct Fault {
    grpc::StatusCode code = grpc::StatusCode::UNAVAILABLE;
    // The number of frames before the call ends.
    int after_frames = 0;
    std::string message = "as the test wants it";
  };

  // The frames of one Push, even if the Push failed.
  struct SeenPush {
    std::vector<PushFrame> frames;
    bool failed = false;
  };

  FakeParameterServer(int index, const BlockMap& block_map);
  ~FakeParameterServer() override;

  ServerEndpoint endpoint();

  void AddHelloFault(Fault fault);
  void AddPushFault(Fault fault);
  void AddPullFault(Fault fault);
  void AddLeaveFault(Fault fault);
  void AddRenewFault(Fault fault);
  void SetHelloReply(const HelloReply& reply);
  void SetRenewReply(const RenewReply& reply);
  // Shortens the next served frame by `elements` elements.
  void CutNextFrame(int elements);
  // Makes pulls report a block as unchanged if the client already holds that version.
  void SkipUnchanged();
  void SetVerdict(Verdict verdict, int64_t lag);
  // While held, a pull waits as if blocked by the staleness bound.
  void HoldPulls(bool held);

  std::vector<SeenPush> pushes();
  std::vector<PullRequest> pulls();
  std::vector<HelloRequest> hellos();
  int leaves();
  int renewals();

  grpc::Status Hello(grpc::ServerContext*, const HelloRequest* request, HelloReply* reply) override;
  grpc::Status Push(grpc::ServerContext*, grpc::ServerReader<PushFrame>* reader,
                    PushReply* reply) override;
  grpc::Status Pull(grpc::ServerContext* context, const PullRequest* request,
                    grpc::ServerWriter<PullFrame>* writer) override;
  grpc::Status Renew(grpc::ServerContext*, const RenewRequest*, RenewReply*) override;
  grpc::Status Leave(grpc::ServerContext*, const LeaveRequest*, LeaveReply*) override;

 private:
  const int index_;
  const BlockMap block_map_;
  std::unique_ptr<grpc::Server> server_;

  Mutex mutex_;
  CondVar held_changed_;
  bool pulls_held_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Fault> hello_faults_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> push_faults_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> pull_faults_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> leave_faults_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fault> renew_faults_ ABSL_GUARDED_BY(mutex_);
  HelloReply hello_reply_ ABSL_GUARDED_BY(mutex_);
  RenewReply renew_reply_ ABSL_GUARDED_BY(mutex_);
  bool skips_unchanged_ ABSL_GUARDED_BY(mutex_) = false;
  int cut_elements_ ABSL_GUARDED_BY(mutex_) = 0;
  Verdict verdict_ ABSL_GUARDED_BY(mutex_) = ACCEPTED;
  int64_t lag_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<SeenPush> pushes_ ABSL_GUARDED_BY(mutex_);
  std::vector<PullRequest> pulls_ ABSL_GUARDED_BY(mutex_);
  std::vector<HelloRequest> hellos_ ABSL_GUARDED_BY(mutex_);
  int leaves_ ABSL_GUARDED_BY(mutex_) = 0;
  int renewals_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace torchps
