#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/report.pb.h"

// Wording shared by status, report and a run's output. Pure functions.

namespace torchps {

using Members = google::protobuf::RepeatedPtrField<ReplicaMember>;
using Metrics = google::protobuf::RepeatedPtrField<MetricValue>;

// Returns, for example, "asynchronous, staleness at most 1 update", "asynchronous, each push alone,
// at most 4 steps ahead" or "synchronous, 1 backup worker". REQUIRES: `spec` is normalised.
std::string DescribeConsistency(const ConsistencySpec& spec);

// Returns "finished" for FINISHED.
std::string StateName(SlotAccounting::State state);
std::string PhaseName(JobStatus::Phase phase);

// Returns "left: sent away", or the state without a reason.
std::string StateAndReason(const std::string& state, const std::string& reason);

// Returns the slot's device, or "2 devices" or "2 processes" if members are listed in separate
// rows.
std::string DeviceText(const std::string& device, const Members& members);

// Returns "replica, 4.2 MiB", or "stage 1, 25,000 parameters, 0.2 MiB" for a pipelined model.
std::string MemberText(const ReplicaMember& member);

// "376", "370-376".
std::string VersionRange(int64_t min, int64_t max);

// Returns "test accuracy 97.30 %, f1 0.9312", or "test loss 0.0275" without metrics.
std::string ResultText(const Metrics& metrics, double loss);

// Returns "97.30 %" for an accuracy, "0.9312" for other metrics.
std::string MetricText(const MetricValue& metric);

// Returns a line about non-finite blocks and how to recover, or "" if `blocks` is 0.
std::string NotFiniteText(uint64_t blocks, bool has_checkpoint);

// Returns a line with the reason of an early end and a line with the checkpoint that the job
// resumed from. Omits a line if `stopped` is empty or `resumed_checkpoint` is 0.
std::string StoppedAndResumed(absl::string_view stopped, uint64_t resumed_checkpoint);

// Explains why a server did not answer, with advice: "server 1 at beta:7000 cannot be reached:
// connection refused; is it running, and is the address right?", "server 1 at beta:7000 refuses
// this client: ...". REQUIRES: `status` is an error.
std::string NoAnswerText(int server, absl::string_view address, const absl::Status& status);

// Returns the report as text: one sentence with the result, tables and two small histograms. About
// 80 columns wide, ends with a newline.
std::string ReportText(const Report& report);

// Returns, for example, "target accuracy 0.98: after 12.3 s, 25,600 samples and 800 pushes", or
// "...: not met".
std::string TargetText(const Report::Target& target);

}  // namespace torchps
