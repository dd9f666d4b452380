#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace torchps {

// Exit codes of torchps processes. Scripts and psctl depend on them; docs/operate.md lists them.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,        // internal error, or the run was interrupted
  kUsage = 2,         // invalid flag, job field or request argument
  kUnreachable = 3,   // a server did not answer before the timeout
  kRefused = 4,       // different job, layout or protocol; permission denied
  kData = 5,          // a data file is missing, truncated or damaged
  kAddressInUse = 6,  // the listening port is already in use
  kLostSlot = 7,      // the worker's lease expired, and the worker lost its slot
  kDiverged = 8,      // the job ended with non-finite parameters
};

// Returns the exit code for the code of `status`.
ExitCode ExitCodeFor(const absl::Status& status);

// Sets the output of --help and --version. --help prints `purpose`, one sentence, and all flags of
// the program, including flags defined outside the file of main(). --version prints the release and
// `libraries`, for example "gRPC 1.51.1". Call once, before absl::ParseCommandLine.
void SetProgramHelp(absl::string_view purpose, const std::string& libraries);

// Checks a command line against the program's absl flags. Call before absl::ParseCommandLine, which
// would instead exit with code 1 and a page of output. Returns INVALID_ARGUMENT, naming the first
// argument that is not a flag of this program, lacks a value, or holds an invalid value. Each
// checked flag is set to the value that absl::ParseCommandLine sets later.
//
// `suggest` receives the name of an unknown flag and may return the text to suggest instead. If it
// is null or returns an empty string, the message suggests the most similar flag.
//
// Not thread-safe: call from main before starting threads. Skips the flags that absl itself handles
// (--help, --version).
absl::Status CheckCommandLine(int argc, const char* const* argv,
                              std::string (*suggest)(absl::string_view name) = nullptr);

}  // namespace torchps
