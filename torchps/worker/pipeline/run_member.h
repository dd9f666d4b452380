#pragma once

#include <functional>

#include "absl/status/status.h"
#include "torchps/worker/pipeline/exchange.h"
#include "torchps/worker/pipeline/stage_work.h"
#include "torchps/worker/slot/worker_options.h"

namespace torchps {

// Options of a replica process in addition to the worker's options.
struct MemberOptions {
  Exchange* exchange = nullptr;  // borrowed
  // For tests: called at each phase of an order.
  std::function<void(MemberPhase phase, int64_t order)> on_phase;
};

// Runs one process of a replica, from the meeting with the other processes until the job ends. The
// replica is one slot, and each process holds one stage of the model. The first process, the
// leader, joins the job for the replica and runs the steps like any worker
// (torchps/worker/loop/step_loop.h). The other processes execute the leader's orders. Each process
// pulls, computes and pushes only one part of the model. The parts of a step form one push with one
// name, so the guarantees of a slot's push also hold here (docs/protocol.md, "A model over several
// processes").
//
// The processes end together, and restart together with a new incarnation from the servers' values.
// No process keeps state that the other processes need.
//
// Returns OK when the job is done. UNAVAILABLE: another process of the replica failed, or a process
// or a server does not answer; restart each process. FAILED_PRECONDITION: the job uses features
// that replicas do not support (local steps, model.init_from), or the processes do not match. Other
// errors as in RunWorker.
absl::Status RunMember(const MemberTask& task, WorkerOptions options, const MemberOptions& member);

}  // namespace torchps
