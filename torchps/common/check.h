#pragma once

#include "absl/base/internal/raw_logging.h"

// Aborts with `message` if an internal invariant is broken. Errors that a peer, a file or the
// network can cause are reported as absl::Status instead. Not called CHECK because libtorch's
// headers define that name.
#define TPS_CHECK(condition, message) ABSL_RAW_CHECK(condition, message)

// Same as TPS_CHECK in debug builds; does nothing in other builds.
#ifdef NDEBUG
#define TPS_DCHECK(condition, message) \
  do {                                 \
    (void)sizeof(condition);           \
  } while (false)
#else
#define TPS_DCHECK(condition, message) ABSL_RAW_CHECK(condition, message)
#endif
