#pragma once

#include <functional>

#include "absl/status/status.h"
#include "worker/pipeline/exchange.h"
#include "worker/pipeline/member_task.h"
#include "worker/slot/worker_options.h"

namespace torchps {

// What one process of a replica needs beside what a worker does.
struct MemberOptions {
  Exchange* exchange = nullptr;  // borrowed
  // A part of an order is about to begin: for tests.
  std::function<void(MemberPhase phase, int64_t order)> on_phase;
};

// One process of a replica from meeting the others to the end of the job. A replica is one slot:
// the processes that hold its model's stages, one each. The first one, the leader, joins the job
// for all of them and goes through it step by step as any worker does (worker/loop/step_loop.h).
// The others do what it orders. Each pulls, computes and pushes its own part of the model, and no
// process ever holds more of it. A step's parts are one push by one name, so that all that is true
// of a slot's push holds for them (docs/protocol.md, "A model over several processes").
//
// All of them end together, and come back together with a new incarnation, from what the servers
// have: a process that has died leaves nothing behind that another one would miss.
//
// OK: the job is done. UNAVAILABLE: another process of the replica has died or failed, a server or
// one of them does not answer; start all of them again. FAILED_PRECONDITION: the job asks for what
// a replica cannot do (local steps, model.init_from), or the processes do not fit together. Others
// as RunWorker's.
absl::Status RunMember(const MemberTask& task, WorkerOptions options, const MemberOptions& member);

}  // namespace torchps
