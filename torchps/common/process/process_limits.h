#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace torchps {

// Returns the soft limit on open files and connections of this process.
int64_t OpenFileLimit();

// Raises the soft limit on open files to the hard limit. The usual soft limit of 1024 protects
// programs that call select(), which torchps does not, and a server needs a connection for each
// worker. Child processes inherit the limit. Keeps the old limit if the kernel refuses. Call from
// main.
void RaiseOpenFileLimit();

// The memory available to this process and the source of that limit.
struct MemoryLimit {
  int64_t bytes = 0;
  // Clause for messages, to be followed by the number of bytes: "whose machine has".
  std::string whose;
};

// Returns the smallest of these limits: the machine's memory; memory.max (cgroup version 2) or
// memory.limit_in_bytes (version 1) of this process's control groups and their ancestors, which is
// a container's limit; and the address space limit (RLIMIT_AS, `ulimit -v`). Skips limits that it
// cannot read. `root` is "/"; tests pass a directory that contains their proc and sys trees.
MemoryLimit FindMemoryLimit(const std::string& root = "/");

// Makes this process print a line to standard error when memory allocation fails, before the
// process ends with SIGABRT or SIGSEGV. The launcher then restarts the process. The line starts
// with `program`, the program name, and ends with `what`, which explains what work survives and
// what to do.
//
// gRPC ends the process silently when an allocation fails: by SIGABRT, or by SIGSEGV after an
// unchecked malloc(). This function therefore installs handlers for both signals and for
// std::set_new_handler. Call once from main before starting threads.
void ReportOutOfMemory(const char* program, const char* what);

// Returns the number of cores that this process may use, at least 1. This is the size of the CPU
// affinity mask, or the control group's CPU quota (cgroup version 1 or 2), rounded up, if that is
// smaller.
int AvailableCores();

// Calls `has_come` repeatedly for at most `time`, yielding the core between calls. Returns true as
// soon as `has_come` does, and false on timeout. Use for events that arrive sooner than a sleeping
// thread would wake, which takes about 50 us (bench/results/tuning.md). Returns false at once on a
// single-core machine.
bool SpinFor(absl::Duration time, absl::FunctionRef<bool()> has_come);

}  // namespace torchps
