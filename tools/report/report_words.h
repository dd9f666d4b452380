#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"

// What status, report and a run's output say in the same words. Pure functions.

namespace torchps {

using Members = google::protobuf::RepeatedPtrField<ReplicaMember>;
using Metrics = google::protobuf::RepeatedPtrField<MetricValue>;

// "asynchronous, staleness at most 1 update", "asynchronous, each push alone, at most 4 steps
// ahead", "synchronous, 1 backup worker". REQUIRES: `spec` is normalised.
std::string DescribeConsistency(const ConsistencySpec& spec);

// "finished" of FINISHED.
std::string StateName(SlotAccounting::State state);
std::string PhaseName(JobStatus::Phase phase);

// "left: sent away"; the state alone without a reason.
std::string StateAndReason(const std::string& state, const std::string& reason);

// Where a slot computes: its device, or "2 devices" or "2 processes" where several have a row each
// below its own.
std::string DeviceText(const std::string& device, const Members& members);

// "replica, 4.2 MiB"; of a model that is cut "stage 1, 25,000 parameters, 0.2 MiB".
std::string MemberText(const ReplicaMember& member);

// "376", "370-376".
std::string VersionRange(int64_t min, int64_t max);

// "test accuracy 97.30 %, f1 0.9312"; "test loss 0.0275" where there is no metric.
std::string ResultText(const Metrics& metrics, double loss);

// "97.30 %" of an accuracy, "0.9312" of any other.
std::string MetricText(const MetricValue& metric);

// A line, where so many blocks of the model are not finite: that, and what to do. Empty: none are.
std::string NotFiniteText(uint64_t blocks, bool has_checkpoint);

// A line each, where there is something to say: why the job ended early (empty: it did not), and
// the checkpoint that it went on from (0: from none).
std::string StoppedAndResumed(absl::string_view stopped, uint64_t resumed_checkpoint);

// Why a server gave no answer, and what to look at: "server 1 at beta:7000 cannot be reached:
// connection refused; is it running, and is the address right?", "server 1 at beta:7000 refuses
// this client: ...". REQUIRES: `status` is an error.
std::string NoAnswerText(int server, absl::string_view address, const absl::Status& status);

}  // namespace torchps
