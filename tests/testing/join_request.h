#pragma once

#include <cstdint>
#include <string>

#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/parameter_service.pb.h"

namespace torchps {

// The functions below return the Join request of a new worker process that takes any slot. Tests
// change its fields as needed.

// Returns a request for a job that does not use the data plane: two workers in ASYNC with equal
// batches of 4, one epoch of 40 samples in leases of 16 samples, one server, a model of three
// elements. The nonce is not set.
JoinRequest SmallJoin();

// Returns a request for the job and model of `hello`, with the only server at `address`.
JoinRequest JoinFor(const HelloRequest& hello, const std::string& address, uint64_t nonce,
                    int64_t train_samples);

}  // namespace torchps
