#pragma once

namespace torchps {

// The cores that this process may use, at least 1: those of its affinity, or the whole cores of its
// control group's CPU quota (version 1 or 2) where these are fewer. A machine may have more.
int AvailableCores();

}  // namespace torchps
