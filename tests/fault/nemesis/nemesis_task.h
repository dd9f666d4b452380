#pragma once

#include <functional>

#include "tests/fault/nemesis/nemesis_wire.h"
#include "torchps/worker/task.h"

namespace torchps {

// Returns the task that a whole worker trains in a nemesis trial. The module contains one linear
// layer per block of a NemesisJob, and all samples are one. The gradient of each layer is
// NemesisJob::Gradient() times `unit`. Torch computes it exactly, so the servers' values show which
// pushes were applied.
//
// Borrows the wire, which returns the slot and step of the gradient. Calls `on_step` after each
// step.
Task MakeNemesisTask(NemesisWire* wire, int unit, std::function<void()> on_step);

}  // namespace torchps
