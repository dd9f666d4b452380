#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "grpcpp/support/client_interceptor.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"
#include "torchps/common/clock.h"
#include "torchps/common/mutex.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// Writes the journal of a worker without changing the worker. As a gRPC interceptor it observes the
// calls to servers and the replies. A push is in the journal before the first byte is sent, and a
// reply before the worker receives it. So the journal records the servers' replies, not the
// worker's interpretation.
//
// Ends the process if the worker or a server breaks the rules of a NemesisJob: a push of a step
// that was not computed, or a verdict other than applied.
//
// Thread-safe. Supports one worker per process, without prefetch.
class NemesisWire final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  // Observes all later calls of this process. `job` must be the same for all slots; it locates the
  // blocks. The returned object is never destroyed. REQUIRES: called once, before a channel is
  // created.
  static NemesisWire* Listen(NemesisJob job, const std::string& journal_path);

  struct Name {
    SlotId slot = 0;
    Step step = 0;
  };
  // Returns the slot and step of the gradient that is computed now. The step follows from the last
  // pull.
  Name NameOfGradient() ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* info) override;

 private:
  class OtherCall;
  class HelloCall;
  class PullCall;
  class PushCall;

  NemesisWire(NemesisJob job, const std::string& journal_path);

  void HelloBegins(const HelloRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void HelloAnswered(int server, const HelloReply& reply) ABSL_LOCKS_EXCLUDED(mutex_);
  void PullBegins(const PullRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  void PushBegins(Step step) ABSL_LOCKS_EXCLUDED(mutex_);
  void PushAnswered(int server, Step step, const PushReply& reply) ABSL_LOCKS_EXCLUDED(mutex_);

  const NemesisJob job_;
  const SteadyClock clock_;
  Mutex mutex_;
  NemesisJournal journal_ ABSL_GUARDED_BY(mutex_);
  // The slot's incarnation; 0 before the first Hello.
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  SlotId slot_ ABSL_GUARDED_BY(mutex_) = 0;
  Step pulled_ ABSL_GUARDED_BY(mutex_) = 0;
  Step computed_ ABSL_GUARDED_BY(mutex_) = 0;
  Step begun_ ABSL_GUARDED_BY(mutex_) = 0;
  // Servers without an acknowledgement of `begun_`.
  std::set<int> missing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
