#pragma once

#include "absl/base/internal/raw_logging.h"

// Aborts with `message` when one of our own invariants is broken. Never for what a peer, a file or
// the network can cause: those are absl::Status. The name is ours because libtorch's headers
// define CHECK.
#define TPS_CHECK(condition, message) ABSL_RAW_CHECK(condition, message)

// The same in debug builds only.
#ifdef NDEBUG
#define TPS_DCHECK(condition, message) \
  do {                                 \
    (void)sizeof(condition);           \
  } while (false)
#else
#define TPS_DCHECK(condition, message) ABSL_RAW_CHECK(condition, message)
#endif
