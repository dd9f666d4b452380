#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/proto/job.pb.h"
#include "torchps/worker/loop/simulated_slowdown.h"

// The flags of all worker programs; --help describes each.
ABSL_DECLARE_FLAG(std::string, data);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(int, gpu_number);
ABSL_DECLARE_FLAG(int, micro_batches);
ABSL_DECLARE_FLAG(int, stage);
ABSL_DECLARE_FLAG(std::vector<std::string>, replica);
ABSL_DECLARE_FLAG(bool, devices);
ABSL_DECLARE_FLAG(int, slot);
ABSL_DECLARE_FLAG(bool, predecessor_died);
ABSL_DECLARE_FLAG(int, threads);
ABSL_DECLARE_FLAG(int, loader_threads);
ABSL_DECLARE_FLAG(absl::Duration, patience);
ABSL_DECLARE_FLAG(bool, local);
ABSL_DECLARE_FLAG(bool, dry_run);
ABSL_DECLARE_FLAG(int, local_servers);
ABSL_DECLARE_FLAG(std::string, dir);
ABSL_DECLARE_FLAG(bool, resume);
ABSL_DECLARE_FLAG(std::string, evaluate);
ABSL_DECLARE_FLAG(absl::Duration, evaluate_every);
ABSL_DECLARE_FLAG(std::string, predict);
ABSL_DECLARE_FLAG(std::string, generate);
ABSL_DECLARE_FLAG(std::string, generate_prompt);
ABSL_DECLARE_FLAG(int64_t, generate_length);
ABSL_DECLARE_FLAG(double, generate_temperature);
ABSL_DECLARE_FLAG(int64_t, generate_top_k);
ABSL_DECLARE_FLAG(int64_t, generate_seed);
ABSL_DECLARE_FLAG(bool, on_training_data);
ABSL_DECLARE_FLAG(std::string, out);
ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(bool, download);
ABSL_DECLARE_FLAG(std::vector<std::string>, mirrors);
ABSL_DECLARE_FLAG(double, progress_seconds);
ABSL_DECLARE_FLAG(bool, exit_with_parent);

namespace torchps {

// The functions below check and combine flags. Call them after the flags were parsed, except
// TakeOverrides; they are then thread-safe. Errors are INVALID_ARGUMENT with one sentence that
// names the flag.

// Removes each --set from an unparsed command line, and returns the assignments in order. absl's
// flag parser would keep only the last --set.
std::vector<std::string> TakeOverrides(std::vector<char*>* arguments);

// The purpose of a worker program.
enum class WorkerMode {
  kTrain,
  kLook,   // --evaluate, --predict or --generate
  kWatch,  // --evaluate_every
};
WorkerMode FlaggedMode();

// True if the worker joins the job of the --servers, because neither --job nor --set is given.
bool JoinsAnyJob(const std::vector<std::string>& overrides);

// Checks that the flags are consistent. `can`: the program supports this mode.
absl::Status CheckTrainFlags();
absl::Status CheckInferenceFlags(bool can);
absl::Status CheckWatchFlags(bool can);

// Returns the normalized job from --job, --set and --data. Also returns errors in the job file.
absl::StatusOr<JobSpec> FlaggedJob(const std::vector<std::string>& overrides);
// Applies --set and --data to a job from another source.
absl::Status ApplyFlags(const std::vector<std::string>& overrides, JobSpec* job);

// Returns the options in --slow and --pace.
absl::StatusOr<SimulatedSlowdown::Options> FlaggedHandicap();

// Returns the endpoints in --servers, using --certs. `log` receives messages about the
// certificates, also after this function returned. Also returns the errors of OpenCertificates()
// and GetEndpoints().
absl::StatusOr<std::vector<ServerEndpoint>> FlaggedServers(
    const std::function<void(const std::string& line)>& log);

}  // namespace torchps
