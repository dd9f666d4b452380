#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "grpcpp/support/client_interceptor.h"
#include "proto/parameter_service.pb.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_journal.h"

namespace torchps {

// Keeps the journal of a worker that knows nothing of it: hears, as an interceptor of gRPC's, what
// this process says to servers and what they answer. A push is in the journal before its first byte
// leaves, and an answer before the worker has it. So the journal is the servers' word, not what the
// worker makes of it.
//
// What no worker may do or be told under a NemesisJob ends the process: a push under a name that
// was not computed, a verdict other than that a block was applied.
//
// Thread-safe. One worker per process, which does not pull ahead.
class NemesisWire final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  // Hears every call that is made from now on. `job`: as all slots have it, for where its blocks
  // are. Stays until the process ends. REQUIRES: called once, and no channel is there.
  static NemesisWire* Listen(NemesisJob job, const std::string& journal_path);

  struct Name {
    SlotId slot = 0;
    Step step = 0;
  };
  // Of the gradient that is computed now: by what was pulled for it, and so by what it has to be
  // pushed as.
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
  // Its slot's, which is 0 before the first greeting.
  Incarnation incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  SlotId slot_ ABSL_GUARDED_BY(mutex_) = 0;
  Step pulled_ ABSL_GUARDED_BY(mutex_) = 0;
  Step computed_ ABSL_GUARDED_BY(mutex_) = 0;
  Step begun_ ABSL_GUARDED_BY(mutex_) = 0;
  // That have not acknowledged it.
  std::set<int> missing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace torchps
