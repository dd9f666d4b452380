#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/calls/server_channel.h"
#include "proto/job.pb.h"
#include "worker/loop/simulated_slowdown.h"

// The flags of every worker program; --help says what each means.
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

// What the flags say, where that is more than a value. All but the first are for after the flags
// were parsed, and thread-safe from then on. What is wrong is INVALID_ARGUMENT, one sentence that
// names the flag.

// Takes every --set out of a command line that is not parsed yet, and gives what they assign, in
// their order: absl would keep the last one only.
std::vector<std::string> TakeOverrides(std::vector<char*>* arguments);

// What a worker program is started for.
enum class WorkerMode {
  kTrain,
  kLook,   // --evaluate, --predict or --generate
  kWatch,  // --evaluate_every
};
WorkerMode FlaggedMode();

// Whether the worker takes the job from its --servers: neither --job nor --set says one.
bool JoinsAnyJob(const std::vector<std::string>& overrides);

// Whether the flags go together. `can`: the program knows what it does in that mode.
absl::Status CheckTrainFlags();
absl::Status CheckLookFlags(bool can);
absl::Status CheckWatchFlags(bool can);

// The job of --job, --set and --data, normalised. Errors also of the job's file and fields.
absl::StatusOr<JobSpec> FlaggedJob(const std::vector<std::string>& overrides);
// Puts what --set and --data say into a job that came from elsewhere.
absl::Status ApplyFlags(const std::vector<std::string>& overrides, JobSpec* job);

// --slow, --pace and --pause.
absl::StatusOr<SimulatedSlowdown::Options> FlaggedHandicap();

// --servers and --certs; `log` hears what becomes of the certificates later. Errors of
// OpenCertificates() and GetEndpoints(), too.
absl::StatusOr<std::vector<ServerEndpoint>> FlaggedServers(
    const std::function<void(const std::string& line)>& log);

}  // namespace torchps
