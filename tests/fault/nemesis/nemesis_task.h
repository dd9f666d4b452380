#pragma once

#include <functional>

#include "tests/fault/nemesis/nemesis_wire.h"
#include "worker/task.h"

namespace torchps {

// What a whole worker trains under a nemesis: a module of as many linear layers as a NemesisJob has
// blocks, on samples that are all one, with an objective whose gradient is NemesisJob::Gradient()
// in every layer, times `unit`. Torch's arithmetic is exact for it, so the servers' values tell
// which pushes are in them, as they do of workers that compute nothing.
//
// Borrows the wire, which tells the gradient's name. `on_step`: a step was computed.
Task MakeNemesisTask(NemesisWire* wire, int unit, std::function<void()> on_step);

}  // namespace torchps
