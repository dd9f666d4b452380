#pragma once

#include <cstdint>
#include <string>

#include "proto/coordinator.pb.h"
#include "proto/parameter_service.pb.h"

namespace torchps {

// What a worker process says first to a coordinator, for any slot. Where it matters to a test, the
// test changes it.

// A job whose data plane nobody uses: two workers in ASYNC with equal batches of 4, one epoch of 40
// samples in leases of 16, one server, a model of three elements. Without a nonce.
JoinRequest SmallJoin();

// For the job and the model that `hello` will greet the one server at `address` with.
JoinRequest JoinFor(const HelloRequest& hello, const std::string& address, uint64_t nonce,
                    int64_t train_samples);

}  // namespace torchps
